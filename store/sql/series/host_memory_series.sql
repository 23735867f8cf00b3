known_sum AS (
    SELECT host, bucket_ts, sum(memory_bytes) AS known_bytes FROM known GROUP BY host, bucket_ts
),
rest AS (
    SELECT u.*, u.used_bytes - coalesce(s.known_bytes, 0) AS rest_bytes
    FROM total AS u LEFT JOIN known_sum AS s USING (host, bucket_ts)
),
part AS (
    SELECT u.host, u.bucket_ts, 'engine' AS part, k.engine_id, k.method, k.memory_bytes, u.first_ts, u.last_ts
    FROM total AS u JOIN known AS k USING (host, bucket_ts)
    UNION ALL
    SELECT host, bucket_ts, 'other used', NULL, 'remainder', greatest(0, rest_bytes), first_ts, last_ts FROM rest
    UNION ALL
    SELECT host, bucket_ts, 'counted twice', NULL, 'remainder', rest_bytes, first_ts, last_ts FROM rest
    WHERE rest_bytes < 0
    UNION ALL
    SELECT host, bucket_ts, 'available', NULL, 'kernel', available_bytes, first_ts, last_ts FROM rest
),
gap AS (
    SELECT host, part, engine_id,
        chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY host, part, engine_id ORDER BY bucket_ts), $gap_seconds)
        AS bucket_ts
    FROM part
),
line AS (
    FROM part UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT p.bucket_ts AS ts, p.host, p.part, p.engine_id, e.label, p.method, p.memory_bytes
FROM line AS p LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY p.host, p.part, p.engine_id NULLS LAST, p.bucket_ts
