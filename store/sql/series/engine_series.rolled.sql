-- As engine_series.raw.sql, from rollups.
WITH point AS (
    SELECT engine_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts, sum(samples)::BIGINT AS samples,
        arg_max(state, last_ts) AS state,
        sum(requests_running_sum) / nullif(sum(requests_running_count), 0) AS requests_running,
        min(requests_running_min) AS requests_running_min, max(requests_running_max) AS requests_running_max,
        sum(requests_waiting_sum) / nullif(sum(requests_waiting_count), 0) AS requests_waiting,
        min(requests_waiting_min) AS requests_waiting_min, max(requests_waiting_max) AS requests_waiting_max,
        sum(kv_used_fraction_sum) / nullif(sum(kv_used_fraction_count), 0) AS kv_used_fraction,
        min(kv_used_fraction_min) AS kv_used_fraction_min, max(kv_used_fraction_max) AS kv_used_fraction_max,
        sum(generation_tokens_increase) / nullif(sum(generation_tokens_window_seconds), 0) AS generation_tokens_per_second,
        min(generation_tokens_per_second_min) AS generation_tokens_per_second_min, max(generation_tokens_per_second_max) AS generation_tokens_per_second_max,
        sum(prompt_tokens_increase) / nullif(sum(prompt_tokens_window_seconds), 0) AS prompt_tokens_per_second,
        min(prompt_tokens_per_second_min) AS prompt_tokens_per_second_min, max(prompt_tokens_per_second_max) AS prompt_tokens_per_second_max,
        CASE WHEN bool_or(generation_live) THEN 'live' WHEN count(generation_tokens_increase) > 0 THEN 'settled' END
            AS generation_source
    FROM (@engine by engine_tail)
    GROUP BY engine_id, bucket_ts
)
