-- As host_memory_series.raw.sql, from rollups: the same means, because sums and numbers of lists add.
WITH total AS (
    SELECT host, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts,
        sum(memory_unavailable_bytes_sum) / sum(memory_unavailable_bytes_count) AS used_bytes,
        sum(memory_available_bytes_sum) / sum(memory_available_bytes_count) AS available_bytes,
        sum(process_lists_count) AS lists
    FROM (@host)
    WHERE memory_unavailable_bytes_count > 0
    GROUP BY host, bucket_ts
),
held AS (
    SELECT host, chart_time(ts, $start, $bucket_seconds) AS bucket_ts, engine_id,
        array_to_string(list_sort(list_distinct(list(method))), '+') AS method, sum(memory_bytes_sum) AS memory_bytes
    FROM (@process_memory)
    WHERE device_id IS NULL AND engine_id IS NOT NULL AND memory_bytes_sum IS NOT NULL
    GROUP BY host, bucket_ts, engine_id
),
known AS (
    SELECT h.host, h.bucket_ts, h.engine_id, h.method, h.memory_bytes / nullif(t.lists, 0) AS memory_bytes
    FROM held AS h JOIN total AS t USING (host, bucket_ts)
)
