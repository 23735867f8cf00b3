gap AS (
    SELECT host, chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY host ORDER BY bucket_ts), $gap_seconds) AS bucket_ts
    FROM point
),
line AS (
    FROM point UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT bucket_ts AS ts, host, cpu_count, memory_total_bytes, swap_total_bytes,
    cpu_fraction, cpu_fraction_min, cpu_fraction_max,
    memory_used_bytes, memory_used_bytes_min, memory_used_bytes_max,
    swap_used_bytes, swap_used_bytes_min, swap_used_bytes_max,
    load_1m, load_1m_min, load_1m_max
FROM line
ORDER BY host, bucket_ts
