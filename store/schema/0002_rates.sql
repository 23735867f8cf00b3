-- Newest facts and rates, as views with plain names, so that a person's own SQL and the pages agree.
-- The table macros take a range: rows outside it are not read. A view is its macro over all time.

CREATE VIEW engine_latest AS
WITH newest AS (
    SELECT *, min(first_seen) OVER (PARTITION BY engine_id) AS earliest
    FROM engine
    QUALIFY row_number() OVER (PARTITION BY engine_id ORDER BY rowid DESC) = 1
)
SELECT
    host,
    engine_id,
    kind,
    CASE WHEN count(*) OVER (PARTITION BY label) > 1 THEN label || ' [' || engine_id || ']' ELSE label END AS label,
    label AS given_label,
    url,
    found_by,
    earliest AS first_seen
FROM newest;
COMMENT ON VIEW engine_latest IS 'newest facts of each engine; a label that two engines share is made unique with the engine_id';

CREATE VIEW epoch_latest AS
SELECT *, min(rowid) OVER (PARTITION BY epoch_id) AS sequence
FROM epoch
QUALIFY row_number() OVER (PARTITION BY epoch_id ORDER BY rowid DESC) = 1;
COMMENT ON VIEW epoch_latest IS 'newest facts of each epoch; sequence rises with the order in which epochs were first written';

CREATE VIEW device_latest AS
SELECT * EXCLUDE (earliest) REPLACE (earliest AS first_seen)
FROM (
    SELECT *, min(first_seen) OVER (PARTITION BY device_id) AS earliest
    FROM device
    QUALIFY row_number() OVER (PARTITION BY device_id ORDER BY rowid DESC) = 1
);
COMMENT ON VIEW device_latest IS 'newest facts of each device';

-- Increases of plain counters between consecutive samples of one epoch that both have the counter.
-- Elapsed time is the difference of the monotonic clock. A counter that decreases inside an epoch
-- (a restart that nobody noticed) makes the increase NULL, never negative. A pair belongs to its
-- later sample; samples from 60 s before the range are read so that the first pair is complete.
-- A predecessor more than 60 s back on the monotonic clock while the wall clock tells another
-- distance means that the clock was set and the true predecessor lies outside the range: no pair.
CREATE MACRO counter_increase_between(t0, t1) AS TABLE
WITH sample AS (
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prompt_tokens' AS quantity, prompt_tokens_total AS counter
    FROM engine_sample WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND prompt_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'settled_generation_tokens' AS quantity, generation_tokens_total AS counter
    FROM engine_sample WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND generation_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prompt_with_cached_tokens', prompt_with_cached_tokens_total
    FROM engine_sample
    WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND prompt_with_cached_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prefix_cache_query_tokens', prefix_cache_query_tokens_total
    FROM engine_sample
    WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND prefix_cache_query_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prefix_cache_hit_tokens', prefix_cache_hit_tokens_total
    FROM engine_sample
    WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND prefix_cache_hit_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'requests_finished', requests_finished_total
    FROM engine_sample WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND requests_finished_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'preemptions', preemptions_total
    FROM engine_sample WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND preemptions_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'generation_seconds', generation_seconds_total
    FROM engine_sample WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND generation_seconds_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'prompt_seconds', prompt_seconds_total
    FROM engine_sample WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1 AND prompt_seconds_total IS NOT NULL
),
pair AS (
    SELECT *,
        monotonic_seconds - lag(monotonic_seconds) OVER earlier AS window_seconds,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS clock_seconds,
        counter - lag(counter) OVER earlier AS change
    FROM sample
    WINDOW earlier AS (PARTITION BY quantity, engine_id, epoch_id ORDER BY monotonic_seconds)
)
SELECT ts, host, engine_id, epoch_id, quantity,
    CASE WHEN change >= 0 THEN change END AS increase,
    window_seconds
FROM pair
WHERE ts >= t0
    AND window_seconds IS NOT NULL
    AND (window_seconds <= 60 OR abs(clock_seconds - window_seconds) <= 60);

-- Generated tokens. `settled` (generation_tokens_total) may move only when a request ends; `live`
-- (generation_live_tokens_total) moves meanwhile. Between two samples, the increase is
--   settled     where either sample has no live counter, and where both are idle: the settled counter's;
--   reconciled  where the later sample is idle, after a busy stretch that began at an idle sample j:
--               what the settled counter gained since j less what was already told as live, at least 0,
--               so that the stretch sums to the settled total;
--   live        else: the live counter's.
-- A live counter printed with 6 digits wavers; it is read through its running maximum. A decrease by
-- more than that precision (2e-5 of its value), or of the settled counter, is a restart: NULL.
CREATE MACRO generation_increase_between(t0, t1) AS TABLE
WITH sample AS (
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        generation_tokens_total AS settled,
        generation_live_tokens_total AS live,
        coalesce(requests_running = 0, false) AS idle
    FROM engine_sample
    WHERE ts >= t0 - INTERVAL 60 SECOND AND ts <= t1
        AND (generation_tokens_total IS NOT NULL OR generation_live_tokens_total IS NOT NULL)
),
neighbour AS (
    SELECT *,
        coalesce(settled < lag(settled) OVER earlier, false)
            OR coalesce(live < lag(live) OVER earlier * (1 - 2e-5), false) AS restarted
    FROM sample
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds)
),
life AS (
    SELECT *, count_if(restarted) OVER (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds) AS life
    FROM neighbour
),
steady AS (
    SELECT * REPLACE (CASE WHEN live IS NOT NULL THEN max(live) OVER earlier END AS live)
    FROM life
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id, life ORDER BY monotonic_seconds)
),
pair AS (
    SELECT *,
        monotonic_seconds - lag(monotonic_seconds) OVER earlier AS window_seconds,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS clock_seconds,
        lag(settled) OVER earlier AS settled_before,
        lag(live) OVER earlier AS live_before,
        lag(idle) OVER earlier AS idle_before
    FROM steady
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds)
),
stretch AS (
    SELECT *,
        last_value(
            CASE WHEN idle AND settled IS NOT NULL AND live IS NOT NULL THEN settled - live END IGNORE NULLS
        ) OVER (
            PARTITION BY engine_id, epoch_id, life ORDER BY monotonic_seconds
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS idle_difference
    FROM pair
),
judged AS (
    SELECT *,
        CASE
            WHEN live IS NULL OR live_before IS NULL THEN 'settled'
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
    source
FROM judged
WHERE ts >= t0
    AND window_seconds IS NOT NULL
    AND (window_seconds <= 60 OR abs(clock_seconds - window_seconds) <= 60);

CREATE MACRO engine_rate_between(t0, t1) AS TABLE
SELECT ts, host, engine_id, epoch_id, 'generation_tokens' AS quantity, increase, window_seconds,
    increase / nullif(window_seconds, 0) AS per_second, source
FROM generation_increase_between(t0, t1)
UNION ALL
SELECT ts, host, engine_id, epoch_id, quantity, increase, window_seconds,
    increase / nullif(window_seconds, 0) AS per_second, 'settled' AS source
FROM counter_increase_between(t0, t1);

CREATE VIEW engine_rate AS
FROM engine_rate_between('-infinity'::TIMESTAMPTZ, 'infinity'::TIMESTAMPTZ);
COMMENT ON VIEW engine_rate IS 'increase of each counter between two consecutive samples of one epoch, at the later one; per_second is increase / window_seconds; NULL: the counter decreased';

-- What each histogram gained in (t0, t1], bucket by bucket and epoch by epoch: its last snapshot at or
-- before t1 less a baseline. The baseline is the last snapshot at or before t0 (a snapshot is written
-- when it changed and at least every 60 s, so 120 s are looked back); without one it is zero when the
-- process started inside the range (then everything it counted lies inside), else the first snapshot
-- inside the range. A histogram whose total fell (a restart that nobody noticed) is left out.
CREATE MACRO histogram_increase_between(t0, t1) AS TABLE
WITH snapshot AS (
    SELECT engine_id, epoch_id, quantity,
        max(ts) AS last_ts,
        max(ts) FILTER (ts <= t0) AS before_ts,
        min(ts) AS first_ts
    FROM latency_bucket
    WHERE ts >= t0 - INTERVAL 120 SECOND AND ts <= t1 AND t0 <= t1 AND isinf(le)
    GROUP BY engine_id, epoch_id, quantity
    HAVING last_ts > t0
),
base AS (
    SELECT s.engine_id, s.epoch_id, s.quantity, s.last_ts,
        CASE
            WHEN s.before_ts IS NOT NULL THEN s.before_ts
            WHEN e.started_is_process_start AND e.started >= t0 THEN NULL
            ELSE s.first_ts
        END AS base_ts
    FROM snapshot AS s LEFT JOIN epoch_latest AS e ON e.epoch_id = s.epoch_id AND e.engine_id = s.engine_id
),
wanted AS (
    SELECT b.engine_id, b.epoch_id, b.quantity, l.le, l.ts, l.cumulative_count, l.sum_seconds, b.last_ts, b.base_ts
    FROM latency_bucket AS l
    JOIN base AS b ON l.engine_id = b.engine_id AND l.epoch_id = b.epoch_id AND l.quantity = b.quantity
        AND (l.ts = b.last_ts OR l.ts = b.base_ts)
    WHERE l.ts >= t0 - INTERVAL 120 SECOND AND l.ts <= t1
),
gain AS (
    SELECT engine_id, epoch_id, quantity, le,
        CASE WHEN any_value(base_ts) IS NULL THEN any_value(cumulative_count) FILTER (ts = last_ts)
            ELSE any_value(cumulative_count) FILTER (ts = last_ts)
                - any_value(cumulative_count) FILTER (ts = base_ts) END AS observations,
        CASE WHEN any_value(base_ts) IS NULL THEN any_value(sum_seconds) FILTER (ts = last_ts)
            ELSE any_value(sum_seconds) FILTER (ts = last_ts)
                - any_value(sum_seconds) FILTER (ts = base_ts) END AS sum_seconds
    FROM wanted
    GROUP BY engine_id, epoch_id, quantity, le
)
SELECT engine_id, epoch_id, quantity, le, observations, sum_seconds
FROM gain
WHERE observations IS NOT NULL
QUALIFY min(observations) OVER (PARTITION BY engine_id, epoch_id, quantity) >= 0;

-- Where on the time axis a sample of a chart lies: at its own time, or at the beginning of its bucket.
-- Buckets are aligned to the clock, so that they stay where they are when a chart moves on.
CREATE MACRO chart_time(sample_ts, range_start, bucket_seconds) AS
    CASE WHEN bucket_seconds = 0 THEN sample_ts
    ELSE greatest(range_start, make_timestamptz(
        (epoch_us(sample_ts) // (bucket_seconds * 1000000)::BIGINT) * (bucket_seconds * 1000000)::BIGINT)) END;

-- The middle of a hole between two sets of samples that is longer than gap_seconds, else NULL.
CREATE MACRO chart_gap(last_ts, next_ts, gap_seconds) AS
    CASE WHEN epoch_us(next_ts) - epoch_us(last_ts) > gap_seconds * 1000000
    THEN make_timestamptz((epoch_us(last_ts) + epoch_us(next_ts)) // 2) END;
