-- Host memory of each engine's process tree.
WITH moment AS (
    SELECT engine_id, ts, any_value(method) AS method,
        CASE WHEN count(*) = count(memory_bytes) THEN sum(memory_bytes) END::DOUBLE AS memory_bytes,
        sum(cpu_cores) AS cpu_cores, sum(process_count)::DOUBLE AS process_count
    FROM process_memory
    WHERE ts >= $start AND ts <= $end AND device_id IS NULL AND engine_id IS NOT NULL
    GROUP BY engine_id, ts
),
point AS (
    SELECT engine_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(ts) AS first_ts, max(ts) AS last_ts, arg_max(method, ts) AS method,
        avg(memory_bytes) AS memory_bytes,
        min(memory_bytes) AS memory_bytes_min, max(memory_bytes) AS memory_bytes_max,
        avg(cpu_cores) AS cpu_cores, avg(process_count) AS process_count
    FROM moment
    GROUP BY engine_id, bucket_ts
)
