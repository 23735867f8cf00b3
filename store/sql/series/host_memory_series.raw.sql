-- Who holds the memory of the host. The parts sum exactly to the installed memory:
-- 'engine' is the resident set of its process tree, an upper bound (pages that processes share, and pages of mapped
-- model files that the kernel could drop, are in it in full); 'other used' is what else is in use, at least 0;
-- 'counted twice' is what the engines' sum exceeds the memory in use by, below 0; 'available' can be had by anyone.
-- Buckets: means over the lists in the bucket; an engine that is missing from a list holds nothing at that time. Raw
-- points, and buckets that no list fell into: the newest list of the last 10 s (or $gap_seconds).
WITH host_time AS (
    SELECT host, ts, memory_total_bytes, memory_available_bytes FROM host_sample
    WHERE ts >= $start AND ts <= $end AND memory_total_bytes IS NOT NULL AND memory_available_bytes IS NOT NULL
),
held AS (
    SELECT host, ts, engine_id, any_value(method) AS method, sum(memory_bytes) AS memory_bytes
    FROM process_memory
    WHERE ts >= $start - INTERVAL 10 SECOND AND ts <= $end AND device_id IS NULL AND engine_id IS NOT NULL
        AND memory_bytes IS NOT NULL
    GROUP BY host, ts, engine_id
),
listed AS (
    SELECT DISTINCT host, ts FROM held
),
point AS (
    SELECT host, chart_time(ts, $start, $bucket_seconds) AS bucket_ts, max(ts) AS last_ts
    FROM host_time
    GROUP BY host, bucket_ts
),
bucketed AS (
    SELECT host, ts, chart_time(ts, $start, $bucket_seconds) AS bucket_ts FROM listed
    WHERE $bucket_seconds > 0 AND ts >= $start
),
list_time AS (
    FROM bucketed
    UNION ALL
    SELECT p.host, l.ts, p.bucket_ts
    FROM (FROM point ANTI JOIN bucketed USING (host, bucket_ts)) AS p
    ASOF JOIN listed AS l ON p.host = l.host AND p.last_ts >= l.ts
    WHERE epoch(p.last_ts) - epoch(l.ts) <= greatest(10, $gap_seconds)
),
lists AS (
    SELECT host, bucket_ts, count(*) AS lists FROM list_time GROUP BY host, bucket_ts
),
total AS (
    SELECT host, chart_time(ts, $start, $bucket_seconds) AS bucket_ts, min(ts) AS first_ts, max(ts) AS last_ts,
        avg(memory_total_bytes - memory_available_bytes) AS used_bytes, avg(memory_available_bytes) AS available_bytes
    FROM host_time
    GROUP BY host, bucket_ts
),
known AS (
    SELECT t.host, t.bucket_ts, h.engine_id, array_to_string(list_sort(list_distinct(list(h.method))), '+') AS method,
        sum(h.memory_bytes) / any_value(n.lists) AS memory_bytes
    FROM list_time AS t
    JOIN held AS h ON h.host = t.host AND h.ts = t.ts
    JOIN lists AS n ON n.host = t.host AND n.bucket_ts = t.bucket_ts
    GROUP BY t.host, t.bucket_ts, h.engine_id
)
