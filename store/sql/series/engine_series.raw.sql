-- Throughput and load of each engine. A rate belongs to the later sample of its pair; a bucket's rate
-- is the sum of increases over the sum of elapsed times, its min and max are those of the pairs.
-- generation_source is 'live' as soon as one pair in the bucket was not settled.
WITH sample AS (
    SELECT engine_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts, ts, state,
        requests_running, requests_waiting, kv_used_fraction
    FROM engine_sample
    WHERE ts >= $start AND ts <= $end
),
gauge AS (
    SELECT engine_id, bucket_ts, min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS samples,
        arg_max(state, ts) AS state,
        avg(requests_running) AS requests_running,
        min(requests_running) AS requests_running_min, max(requests_running) AS requests_running_max,
        avg(requests_waiting) AS requests_waiting,
        min(requests_waiting) AS requests_waiting_min, max(requests_waiting) AS requests_waiting_max,
        avg(kv_used_fraction) AS kv_used_fraction,
        min(kv_used_fraction) AS kv_used_fraction_min, max(kv_used_fraction) AS kv_used_fraction_max
    FROM sample
    GROUP BY engine_id, bucket_ts
),
generation AS (
    SELECT engine_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        sum(increase) / nullif(sum(window_seconds), 0) AS generation_tokens_per_second,
        min(increase / nullif(window_seconds, 0)) AS generation_tokens_per_second_min,
        max(increase / nullif(window_seconds, 0)) AS generation_tokens_per_second_max,
        CASE WHEN bool_or(source <> 'settled') THEN 'live' ELSE 'settled' END AS generation_source
    FROM generation_increase_between($start, $end)
    WHERE increase IS NOT NULL
    GROUP BY engine_id, bucket_ts
),
prompt AS (
    SELECT engine_id, chart_time(ts, $start, $bucket_seconds) AS bucket_ts,
        sum(increase) / nullif(sum(window_seconds), 0) AS prompt_tokens_per_second,
        min(increase / nullif(window_seconds, 0)) AS prompt_tokens_per_second_min,
        max(increase / nullif(window_seconds, 0)) AS prompt_tokens_per_second_max
    FROM prompt_increase_between($start, $end)
    WHERE increase IS NOT NULL
    GROUP BY engine_id, bucket_ts
),
point AS (
    SELECT * FROM gauge
    LEFT JOIN generation USING (engine_id, bucket_ts)
    LEFT JOIN prompt USING (engine_id, bucket_ts)
)
