-- As device_series.raw.sql, from rollups.
WITH point AS (
    SELECT device_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts,
        arg_max(memory_total_bytes, last_ts) AS memory_total_bytes,
        arg_max(power_limit_watts, last_ts) AS power_limit_watts,
        sum(memory_used_bytes_sum) / nullif(sum(memory_used_bytes_count), 0) AS memory_used_bytes,
        min(memory_used_bytes_min)::DOUBLE AS memory_used_bytes_min, max(memory_used_bytes_max)::DOUBLE AS memory_used_bytes_max,
        sum(utilisation_fraction_sum) / nullif(sum(utilisation_fraction_count), 0) AS utilisation_fraction,
        min(utilisation_fraction_min) AS utilisation_fraction_min, max(utilisation_fraction_max) AS utilisation_fraction_max,
        sum(power_watts_sum) / nullif(sum(power_watts_count), 0) AS power_watts,
        min(power_watts_min) AS power_watts_min, max(power_watts_max) AS power_watts_max,
        sum(temperature_celsius_sum) / nullif(sum(temperature_celsius_count), 0) AS temperature_celsius,
        min(temperature_celsius_min) AS temperature_celsius_min, max(temperature_celsius_max) AS temperature_celsius_max,
        sum(sm_clock_hertz_sum) / nullif(sum(sm_clock_hertz_count), 0) AS sm_clock_hertz,
        min(sm_clock_hertz_min) AS sm_clock_hertz_min, max(sm_clock_hertz_max) AS sm_clock_hertz_max
    FROM (@device by device_tail)
    GROUP BY device_id, bucket_ts
)
