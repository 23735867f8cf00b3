-- What is not rolled up yet, for charts by the minute and hour: samples in the shape of rollups that hold one sample
-- each, with the columns that the chart reads. Every refresh of a chart reads them, so they make no detour.

-- As in 0006_rollups.sql; engines without a live counter, which are most, skip what only that needs.
CREATE OR REPLACE MACRO generation_increase_between(t0, t1, since := NULL, until := NULL) AS TABLE
WITH sample AS (
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        generation_tokens_total AS settled,
        generation_live_tokens_total AS live,
        coalesce(requests_running = 0, false) AS idle,
        requests_running
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1)
        AND (generation_tokens_total IS NOT NULL OR generation_live_tokens_total IS NOT NULL)
),
neighbour AS (
    SELECT *,
        monotonic_seconds - lag(monotonic_seconds) OVER earlier AS window_seconds,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS clock_seconds,
        lag(settled) OVER earlier AS settled_before,
        lag(live) OVER earlier IS NOT NULL AS told_live_before,
        lag(idle) OVER earlier AS idle_before,
        lag(requests_running) OVER earlier AS running_before,
        bool_or(live IS NOT NULL) OVER (earlier ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS tells_live,
        coalesce(settled < lag(settled) OVER earlier, false)
            OR coalesce(live < lag(live) OVER earlier * (1 - 2e-5), false) AS restarted
    FROM sample
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds)
),
life AS (
    SELECT *, count_if(restarted) OVER (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds) AS life
    FROM neighbour WHERE tells_live
),
steady AS (
    SELECT * REPLACE (CASE WHEN live IS NOT NULL THEN max(live) OVER earlier END AS live)
    FROM life
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id, life ORDER BY monotonic_seconds)
),
stretch AS (
    SELECT *,
        lag(live) OVER earlier AS live_before,
        last_value(
            CASE WHEN idle AND settled IS NOT NULL AND live IS NOT NULL THEN settled - live END IGNORE NULLS
        ) OVER (earlier ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_difference
    FROM steady
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id, life ORDER BY monotonic_seconds)
    UNION ALL BY NAME
    SELECT * FROM neighbour WHERE NOT tells_live
),
judged AS (
    SELECT *,
        CASE
            WHEN live IS NULL OR NOT told_live_before THEN 'settled'
            WHEN idle AND idle_before AND settled IS NOT NULL AND settled_before IS NOT NULL THEN 'settled'
            WHEN idle AND settled IS NOT NULL AND idle_difference IS NOT NULL THEN 'reconciled'
            ELSE 'live'
        END AS source
    FROM stretch
)
SELECT ts, host, engine_id, epoch_id,
    CASE
        WHEN restarted THEN NULL
        WHEN source = 'settled' THEN settled - settled_before
        WHEN source = 'reconciled' THEN greatest(0, settled - live_before - idle_difference)
        ELSE live - live_before
    END AS increase,
    window_seconds,
    source,
    coalesce(greatest(requests_running, running_before) > 0, false) AS working
FROM judged
WHERE ts >= t0 AND ts <= t1
    AND window_seconds IS NOT NULL
    AND (window_seconds <= 60 OR abs(clock_seconds - window_seconds) <= 60);

-- As counter_increase_between, of one quantity alone.
CREATE MACRO prompt_increase_between(t0, t1, since := NULL, until := NULL) AS TABLE
WITH pair AS (
    SELECT ts, host, engine_id, epoch_id,
        monotonic_seconds - lag(monotonic_seconds) OVER earlier AS window_seconds,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS clock_seconds,
        prompt_tokens_total - lag(prompt_tokens_total) OVER earlier AS change
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1)
        AND prompt_tokens_total IS NOT NULL
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds)
)
SELECT ts, host, engine_id, epoch_id, CASE WHEN change >= 0 THEN change END AS increase, window_seconds
FROM pair
WHERE ts >= t0 AND ts <= t1
    AND window_seconds IS NOT NULL
    AND (window_seconds <= 60 OR abs(clock_seconds - window_seconds) <= 60);

CREATE MACRO engine_tail(t0, t1, width_seconds, since, until) AS TABLE
SELECT ts, engine_id, ts AS first_ts, ts AS last_ts, 1 AS samples, state,
    (requests_running IS NOT NULL)::BIGINT AS requests_running_count, requests_running AS requests_running_sum,
    requests_running AS requests_running_min, requests_running AS requests_running_max,
    (requests_waiting IS NOT NULL)::BIGINT AS requests_waiting_count, requests_waiting AS requests_waiting_sum,
    requests_waiting AS requests_waiting_min, requests_waiting AS requests_waiting_max,
    (kv_used_fraction IS NOT NULL)::BIGINT AS kv_used_fraction_count, kv_used_fraction AS kv_used_fraction_sum,
    kv_used_fraction AS kv_used_fraction_min, kv_used_fraction AS kv_used_fraction_max
FROM engine_sample WHERE ts >= t0 AND ts < t1
UNION ALL BY NAME
SELECT ts, engine_id, increase AS generation_tokens_increase, window_seconds AS generation_tokens_window_seconds,
    increase / nullif(window_seconds, 0) AS generation_tokens_per_second_min,
    increase / nullif(window_seconds, 0) AS generation_tokens_per_second_max, source <> 'settled' AS generation_live
FROM generation_increase_between(t0, t1, since := since, until := until) WHERE ts < t1 AND increase IS NOT NULL
UNION ALL BY NAME
SELECT ts, engine_id, increase AS prompt_tokens_increase, window_seconds AS prompt_tokens_window_seconds,
    increase / nullif(window_seconds, 0) AS prompt_tokens_per_second_min,
    increase / nullif(window_seconds, 0) AS prompt_tokens_per_second_max
FROM prompt_increase_between(t0, t1, since := since, until := until) WHERE ts < t1 AND increase IS NOT NULL;

CREATE MACRO device_tail(t0, t1, width_seconds, since, until) AS TABLE
SELECT ts, device_id, ts AS first_ts, ts AS last_ts, memory_total_bytes, power_limit_watts,
    (memory_used_bytes IS NOT NULL)::BIGINT AS memory_used_bytes_count, memory_used_bytes AS memory_used_bytes_sum,
    memory_used_bytes AS memory_used_bytes_min, memory_used_bytes AS memory_used_bytes_max,
    (utilisation_fraction IS NOT NULL)::BIGINT AS utilisation_fraction_count,
    utilisation_fraction AS utilisation_fraction_sum,
    utilisation_fraction AS utilisation_fraction_min, utilisation_fraction AS utilisation_fraction_max,
    (power_watts IS NOT NULL)::BIGINT AS power_watts_count, power_watts AS power_watts_sum,
    power_watts AS power_watts_min, power_watts AS power_watts_max,
    (temperature_celsius IS NOT NULL)::BIGINT AS temperature_celsius_count,
    temperature_celsius AS temperature_celsius_sum,
    temperature_celsius AS temperature_celsius_min, temperature_celsius AS temperature_celsius_max,
    (sm_clock_hertz IS NOT NULL)::BIGINT AS sm_clock_hertz_count, sm_clock_hertz AS sm_clock_hertz_sum,
    sm_clock_hertz AS sm_clock_hertz_min, sm_clock_hertz AS sm_clock_hertz_max
FROM device_sample WHERE ts >= t0 AND ts < t1;

CREATE MACRO device_memory_tail(t0, t1, width_seconds, since, until) AS TABLE
WITH listed AS (
    SELECT DISTINCT device_id, ts FROM process_memory
    WHERE ts >= t0 AND ts < t1 AND device_id IS NOT NULL AND memory_bytes IS NOT NULL
)
SELECT d.ts, d.device_id, d.ts AS first_ts, d.ts AS last_ts,
    (memory_used_bytes IS NOT NULL)::BIGINT AS memory_used_bytes_count, memory_used_bytes AS memory_used_bytes_sum,
    0 AS process_lists_count, l.ts IS NOT NULL AS process_lists_aligned
FROM device_sample AS d LEFT JOIN listed AS l USING (device_id, ts) WHERE d.ts >= t0 AND d.ts < t1
UNION ALL BY NAME
SELECT ts, device_id, 1 AS process_lists_count FROM listed;
