-- As host_series.raw.sql, from rollups.
WITH point AS (
    SELECT host, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts,
        arg_max(cpu_count, last_ts) AS cpu_count,
        arg_max(memory_total_bytes, last_ts) AS memory_total_bytes,
        arg_max(swap_total_bytes, last_ts) AS swap_total_bytes,
        sum(cpu_fraction_sum) / nullif(sum(cpu_fraction_count), 0) AS cpu_fraction,
        min(cpu_fraction_min) AS cpu_fraction_min, max(cpu_fraction_max) AS cpu_fraction_max,
        sum(memory_used_bytes_sum) / nullif(sum(memory_used_bytes_count), 0) AS memory_used_bytes,
        min(memory_used_bytes_min)::DOUBLE AS memory_used_bytes_min, max(memory_used_bytes_max)::DOUBLE AS memory_used_bytes_max,
        sum(swap_used_bytes_sum) / nullif(sum(swap_used_bytes_count), 0) AS swap_used_bytes,
        min(swap_used_bytes_min)::DOUBLE AS swap_used_bytes_min, max(swap_used_bytes_max)::DOUBLE AS swap_used_bytes_max,
        sum(load_1m_sum) / nullif(sum(load_1m_count), 0) AS load_1m,
        min(load_1m_min) AS load_1m_min, max(load_1m_max) AS load_1m_max
    FROM (@host)
    GROUP BY host, bucket_ts
)
