gap AS (
    SELECT engine_id, chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY engine_id ORDER BY bucket_ts), $gap_seconds)
        AS bucket_ts
    FROM point
),
line AS (
    FROM point UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT p.bucket_ts AS ts, p.engine_id, e.label, p.method,
    p.memory_bytes, p.memory_bytes_min, p.memory_bytes_max, p.cpu_cores, p.process_count
FROM line AS p LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY p.engine_id, p.bucket_ts
