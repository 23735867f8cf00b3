-- Who holds the memory of each device. The parts sum exactly to what the driver reports as used:
-- 'driver and unattributed' is the rest, at least 0. Where no process could be seen at that time, it
-- is everything, with the method 'none'; else its method is 'remainder'. Where the processes hold more than
-- is used (memory that they share counts for each of them), 'counted twice' is the difference, below 0.
-- Raw points: a process list belongs to the newest device sample at or before it. Buckets: means over
-- the lists in the bucket; a process that is missing from a list holds nothing at that time. Lists that
-- were read with the device's samples, as the collector does, make the samples without one empty lists.
WITH device_time AS (
    SELECT device_id, ts, memory_used_bytes FROM device_sample WHERE ts >= $start AND ts <= $end
),
listed AS (
    SELECT DISTINCT device_id, ts FROM process_memory
    WHERE ts >= $start AND ts <= $end AND device_id IS NOT NULL AND memory_bytes IS NOT NULL
),
list_time AS (
    SELECT device_id, ts, chart_time(ts, $start, $bucket_seconds) AS bucket_ts FROM listed WHERE $bucket_seconds > 0
    UNION ALL
    SELECT l.device_id, l.ts, d.ts AS bucket_ts
    FROM (FROM listed WHERE $bucket_seconds = 0) AS l ASOF JOIN device_time AS d
        ON l.device_id = d.device_id AND l.ts >= d.ts
    WHERE epoch(l.ts) - epoch(d.ts) <= $gap_seconds
),
used AS (
    SELECT device_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(ts) AS first_ts, max(ts) AS last_ts, avg(memory_used_bytes) AS used_bytes,
        count(memory_used_bytes) AS samples
    FROM device_time
    GROUP BY device_id, bucket_ts
),
lists AS (
    SELECT t.device_id, t.bucket_ts,
        CASE WHEN bool_or(d.ts IS NOT NULL) THEN greatest(any_value(u.samples), count(*)) ELSE count(*) END AS lists
    FROM list_time AS t
    JOIN used AS u ON u.device_id = t.device_id AND u.bucket_ts = t.bucket_ts
    LEFT JOIN device_time AS d ON d.device_id = t.device_id AND d.ts = t.ts
    GROUP BY t.device_id, t.bucket_ts
),
known AS (
    SELECT t.device_id, t.bucket_ts, p.engine_id,
        array_to_string(list_sort(list_distinct(list(p.method))), '+') AS method,
        sum(p.memory_bytes) / any_value(n.lists) AS memory_bytes
    FROM process_memory AS p
    JOIN list_time AS t ON p.device_id = t.device_id AND p.ts = t.ts
    JOIN lists AS n ON n.device_id = t.device_id AND n.bucket_ts = t.bucket_ts
    WHERE p.ts >= $start AND p.ts <= $end AND p.memory_bytes IS NOT NULL
    GROUP BY t.device_id, t.bucket_ts, p.engine_id
)
