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
)
