-- As engine_memory_series.raw.sql, from rollups.
WITH point AS (
    SELECT engine_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts, arg_max(method, last_ts) AS method,
        sum(memory_bytes_sum) / nullif(sum(memory_bytes_count), 0) AS memory_bytes,
        min(memory_bytes_min)::DOUBLE AS memory_bytes_min, max(memory_bytes_max)::DOUBLE AS memory_bytes_max,
        sum(cpu_cores_sum) / nullif(sum(cpu_cores_count), 0) AS cpu_cores,
        sum(process_count_sum) / nullif(sum(process_count_count), 0) AS process_count
    FROM (@process_memory)
    WHERE device_id IS NULL AND engine_id IS NOT NULL
    GROUP BY engine_id, bucket_ts
)
