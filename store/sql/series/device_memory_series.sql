known_sum AS (
    SELECT device_id, bucket_ts, sum(memory_bytes) AS known_bytes FROM known GROUP BY device_id, bucket_ts
),
part AS (
    SELECT u.bucket_ts, u.device_id, CASE WHEN k.engine_id IS NULL THEN 'other processes' ELSE 'engine' END AS part,
        k.engine_id, k.method, k.memory_bytes, u.first_ts, u.last_ts
    FROM used AS u JOIN known AS k USING (device_id, bucket_ts)
    UNION ALL
    SELECT u.bucket_ts, u.device_id, 'driver and unattributed' AS part, NULL AS engine_id,
        CASE WHEN s.known_bytes IS NULL THEN 'none' ELSE 'remainder' END AS method,
        CASE WHEN u.used_bytes IS NOT NULL THEN greatest(0, u.used_bytes - coalesce(s.known_bytes, 0)) END
            AS memory_bytes,
        u.first_ts, u.last_ts
    FROM used AS u LEFT JOIN known_sum AS s USING (device_id, bucket_ts)
    UNION ALL
    SELECT u.bucket_ts, u.device_id, 'counted twice' AS part, NULL AS engine_id, 'remainder' AS method,
        u.used_bytes - s.known_bytes AS memory_bytes, u.first_ts, u.last_ts
    FROM used AS u JOIN known_sum AS s USING (device_id, bucket_ts)
    WHERE s.known_bytes > u.used_bytes
),
gap AS (
    SELECT device_id, part, engine_id,
        chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY device_id, part, engine_id ORDER BY bucket_ts), $gap_seconds)
        AS bucket_ts
    FROM part
),
line AS (
    FROM part UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT p.bucket_ts AS ts, p.device_id, p.part, p.engine_id, e.label, p.method, p.memory_bytes
FROM line AS p LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY p.device_id, p.part, p.engine_id NULLS LAST, p.bucket_ts
