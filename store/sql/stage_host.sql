-- How busy the cores of the host were from $start to $end, and how much of that the processes of $engine_id were: means
-- over time, in cores. A sample tells of the time since the one before it, so only samples whose predecessor lies in the
-- range count; covered_seconds is what they cover of it, the lesser of both where host and engine differ. The host is
-- the one that the engine's processes were seen on; no row where none was.
WITH process AS (
    SELECT host, ts, CASE WHEN count(*) = count(cpu_cores) THEN sum(cpu_cores) END AS cores
    FROM process_memory
    WHERE ts >= $start AND ts <= $end AND engine_id = $engine_id AND device_id IS NULL
    GROUP BY host, ts
),
reading AS (
    SELECT host, 'engine' AS of_what, ts, cores, NULL::BIGINT AS cpu_count FROM process
    UNION ALL
    SELECT host, 'host', ts, cpu_fraction * cpu_count, cpu_count FROM host_sample
    WHERE ts >= $start AND ts <= $end AND host IN (SELECT host FROM process)
),
span AS (
    SELECT *, epoch(ts) - epoch(lag(ts) OVER (PARTITION BY host, of_what ORDER BY ts)) AS seconds FROM reading
),
used AS (
    SELECT host, of_what, max(cpu_count) AS cpu_count, sum(cores * seconds) / sum(seconds) AS cores,
        sum(seconds) AS seconds
    FROM span WHERE seconds > 0 AND cores IS NOT NULL
    GROUP BY host, of_what
)
SELECT h.host, h.cpu_count, h.cores AS busy_cores, e.cores AS engine_cores, least(h.seconds, e.seconds) AS covered_seconds
FROM used AS h JOIN used AS e ON e.host = h.host
WHERE h.of_what = 'host' AND e.of_what = 'engine'
ORDER BY h.host
