-- What each device did.
WITH point AS (
    SELECT device_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(ts) AS first_ts, max(ts) AS last_ts,
        arg_max(memory_total_bytes, ts) AS memory_total_bytes,
        arg_max(power_limit_watts, ts) AS power_limit_watts,
        avg(memory_used_bytes) AS memory_used_bytes,
        min(memory_used_bytes)::DOUBLE AS memory_used_bytes_min, max(memory_used_bytes)::DOUBLE AS memory_used_bytes_max,
        avg(utilisation_fraction) AS utilisation_fraction,
        min(utilisation_fraction) AS utilisation_fraction_min, max(utilisation_fraction) AS utilisation_fraction_max,
        avg(power_watts) AS power_watts, min(power_watts) AS power_watts_min, max(power_watts) AS power_watts_max,
        avg(temperature_celsius) AS temperature_celsius,
        min(temperature_celsius) AS temperature_celsius_min, max(temperature_celsius) AS temperature_celsius_max,
        avg(sm_clock_hertz) AS sm_clock_hertz,
        min(sm_clock_hertz) AS sm_clock_hertz_min, max(sm_clock_hertz) AS sm_clock_hertz_max
    FROM device_sample
    WHERE ts >= $start AND ts <= $end
    GROUP BY device_id, bucket_ts
)
