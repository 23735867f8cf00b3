-- What the host did.
WITH point AS (
    SELECT host, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(ts) AS first_ts, max(ts) AS last_ts,
        arg_max(cpu_count, ts) AS cpu_count,
        arg_max(memory_total_bytes, ts) AS memory_total_bytes,
        arg_max(swap_total_bytes, ts) AS swap_total_bytes,
        avg(cpu_fraction) AS cpu_fraction, min(cpu_fraction) AS cpu_fraction_min, max(cpu_fraction) AS cpu_fraction_max,
        avg(memory_used_bytes) AS memory_used_bytes,
        min(memory_used_bytes)::DOUBLE AS memory_used_bytes_min, max(memory_used_bytes)::DOUBLE AS memory_used_bytes_max,
        avg(swap_used_bytes) AS swap_used_bytes,
        min(swap_used_bytes)::DOUBLE AS swap_used_bytes_min, max(swap_used_bytes)::DOUBLE AS swap_used_bytes_max,
        avg(load_1m) AS load_1m, min(load_1m) AS load_1m_min, max(load_1m) AS load_1m_max
    FROM host_sample
    WHERE ts >= $start AND ts <= $end
    GROUP BY host, bucket_ts
),
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
