gap AS (
    SELECT device_id, chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY device_id ORDER BY bucket_ts), $gap_seconds)
        AS bucket_ts
    FROM point
),
line AS (
    FROM point UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT p.bucket_ts AS ts, p.device_id, d."index", d.name, p.memory_total_bytes, p.power_limit_watts,
    p.memory_used_bytes, p.memory_used_bytes_min, p.memory_used_bytes_max,
    p.utilisation_fraction, p.utilisation_fraction_min, p.utilisation_fraction_max,
    p.power_watts, p.power_watts_min, p.power_watts_max,
    p.temperature_celsius, p.temperature_celsius_min, p.temperature_celsius_max,
    p.sm_clock_hertz, p.sm_clock_hertz_min, p.sm_clock_hertz_max
FROM line AS p LEFT JOIN device_latest AS d USING (device_id)
ORDER BY p.device_id, p.bucket_ts
