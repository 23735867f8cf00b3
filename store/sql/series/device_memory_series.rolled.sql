-- As device_memory_series.raw.sql, from rollups: the same means, because sums and numbers of lists add.
WITH used AS (
    SELECT device_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts,
        sum(memory_used_bytes_sum) / nullif(sum(memory_used_bytes_count), 0) AS used_bytes,
        CASE WHEN bool_or(process_lists_aligned) THEN greatest(sum(memory_used_bytes_count), sum(process_lists_count))
            ELSE sum(process_lists_count) END AS lists
    FROM (@device by device_memory_tail)
    GROUP BY device_id, bucket_ts
    HAVING count(first_ts) > 0
),
held AS (
    SELECT device_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts, engine_id,
        array_to_string(list_sort(list_distinct(list(method))), '+') AS method, sum(memory_bytes_sum) AS memory_bytes
    FROM (@process_memory)
    WHERE device_id IS NOT NULL AND memory_bytes_sum IS NOT NULL
    GROUP BY device_id, bucket_ts, engine_id
),
known AS (
    SELECT h.device_id, h.bucket_ts, h.engine_id, h.method, h.memory_bytes / nullif(u.lists, 0) AS memory_bytes
    FROM held AS h JOIN used AS u USING (device_id, bucket_ts)
)
