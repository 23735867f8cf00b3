-- One row an engine, as of $at. Gauges and state come from the newest sample; where the last two
-- minutes have none, from the newest of the last 8 days, and state_ts then says how old it is.
-- Rates are increase over elapsed time, summed over the pairs in the window; a pair that spans more
-- than $window_seconds is left out, because it says nothing about that window.
-- Mean ITL: increase of the histogram's sum over increase of its count; where an engine has no such
-- histogram, generation_seconds over generation_tokens (the mean over its parallel streams).
WITH recent AS (
    SELECT engine_id, max(ts) AS ts FROM engine_sample
    WHERE ts > $at - INTERVAL 2 MINUTE AND ts <= $at
    GROUP BY engine_id
),
quiet AS (
    SELECT engine_id FROM engine_latest WHERE engine_id NOT IN (SELECT engine_id FROM recent)
),
newest AS (
    FROM recent
    UNION ALL
    SELECT engine_id, max(ts) AS ts FROM engine_sample SEMI JOIN quiet USING (engine_id)
    WHERE ts > $at - INTERVAL 8 DAY AND ts <= $at - INTERVAL 2 MINUTE
    GROUP BY engine_id
),
sample AS (
    SELECT s.* FROM engine_sample AS s JOIN newest AS n ON s.engine_id = n.engine_id AND s.ts = n.ts
    WHERE s.ts > $at - INTERVAL 8 DAY AND s.ts <= $at
    QUALIFY row_number() OVER (PARTITION BY s.engine_id ORDER BY s.monotonic_seconds DESC) = 1
),
other_state AS (
    SELECT e.engine_id, max(e.ts) AS ts
    FROM engine_sample AS e JOIN sample AS s ON e.engine_id = s.engine_id AND e.state <> s.state
    WHERE e.ts > $at - INTERVAL 8 DAY AND e.ts <= $at
    GROUP BY e.engine_id
),
-- every sample after the last one in another state is in this state
same_state AS (
    SELECT e.engine_id, min(e.ts) AS state_since
    FROM engine_sample AS e SEMI JOIN sample AS s ON e.engine_id = s.engine_id
    LEFT JOIN other_state AS o ON o.engine_id = e.engine_id
    WHERE e.ts > $at - INTERVAL 8 DAY AND e.ts <= $at AND (o.ts IS NULL OR e.ts > o.ts)
    GROUP BY e.engine_id
),
rate AS (
    SELECT * FROM engine_rate_between($at - to_seconds($window_seconds), $at)
    WHERE ts > $at - to_seconds($window_seconds) AND window_seconds <= $window_seconds AND increase IS NOT NULL
),
in_window AS (
    SELECT engine_id,
        sum(increase) FILTER (just_now AND quantity = 'generation_tokens')
            / nullif(sum(window_seconds) FILTER (just_now AND quantity = 'generation_tokens'), 0)
            AS generation_tokens_per_second,
        CASE
            WHEN bool_or(source <> 'settled') FILTER (just_now AND quantity = 'generation_tokens') THEN 'live'
            WHEN bool_or(just_now AND quantity = 'generation_tokens') THEN 'settled'
        END AS generation_source,
        sum(increase) FILTER (just_now AND quantity = 'prompt_tokens')
            / nullif(sum(window_seconds) FILTER (just_now AND quantity = 'prompt_tokens'), 0)
            AS prompt_tokens_per_second,
        sum(increase) FILTER (quantity = 'settled_generation_tokens') AS generation_tokens,
        sum(increase) FILTER (quantity = 'prefix_cache_hit_tokens')
            / nullif(sum(increase) FILTER (quantity = 'prefix_cache_query_tokens'), 0) AS prefix_cache_hit_fraction,
        sum(increase) FILTER (quantity = 'generation_seconds')
            / nullif(sum(increase) FILTER (quantity = 'settled_generation_tokens'), 0) AS mean_seconds_per_token
    FROM (SELECT *, ts > $at - to_seconds($rate_window_seconds) AS just_now FROM rate)
    GROUP BY engine_id
),
itl AS (
    SELECT engine_id, sum(sum_seconds) / nullif(sum(observations), 0) AS mean_itl_seconds
    FROM histogram_increase_between($at - to_seconds($window_seconds), $at)
    WHERE quantity = 'itl_seconds' AND isinf(le)
    GROUP BY engine_id
),
life AS (
    SELECT l.*, coalesce(l.epoch_id = s.epoch_id, false) AS sampled
    FROM epoch_latest AS l LEFT JOIN sample AS s USING (engine_id)
    WHERE l.first_seen <= $at
    QUALIFY row_number() OVER (PARTITION BY l.engine_id ORDER BY sampled DESC, l.sequence DESC) = 1
)
SELECT
    e.host, e.engine_id, e.kind, e.label, e.url, e.found_by, e.first_seen,
    l.epoch_id, l.started AS epoch_started, l.started_is_process_start AS epoch_started_is_process_start,
    l.version, l.model_id, l.model_path, l.quantization, l.max_context_tokens, l.slots, l.arguments, l.facts,
    s.state, s.detail, s.ts AS state_ts, ss.state_since,
    w.generation_tokens_per_second, w.generation_source, w.prompt_tokens_per_second,
    w.generation_tokens,
    s.requests_running, s.requests_waiting, s.kv_used_fraction, s.kv_capacity_tokens,
    w.prefix_cache_hit_fraction,
    CASE WHEN i.engine_id IS NOT NULL THEN i.mean_itl_seconds ELSE w.mean_seconds_per_token END AS mean_itl_seconds,
    m.device_memory_bytes, m.device_memory_method, m.host_memory_bytes, m.host_memory_method,
    m.cpu_cores, m.process_count
FROM engine_latest AS e
LEFT JOIN life AS l ON l.engine_id = e.engine_id
LEFT JOIN sample AS s ON s.engine_id = e.engine_id
LEFT JOIN same_state AS ss ON ss.engine_id = e.engine_id
LEFT JOIN in_window AS w ON w.engine_id = e.engine_id
LEFT JOIN itl AS i ON i.engine_id = e.engine_id
LEFT JOIN engine_memory_at($at, $window_seconds) AS m ON m.engine_id = e.engine_id
WHERE e.first_seen <= $at
    AND NOT (
        coalesce(s.state = 'stopped' AND ss.state_since < $at - INTERVAL 10 MINUTE, false)
        AND e.engine_id NOT IN (SELECT engine_id FROM epoch WHERE version IS NOT NULL OR model_id IS NOT NULL)
    )
ORDER BY e.label, e.engine_id
