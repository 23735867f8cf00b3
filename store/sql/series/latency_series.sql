-- Latency over time: the observations of each bucket of time, merged over epochs and minutes, never averaged.
-- Quantiles follow the rule of latency.sql. Where histograms of one engine have different bounds in the range, only
-- those that all of them have are used. A bucket without observations has count 0 and no quantiles.
WITH fresh AS MATERIALIZED (
    SELECT * FROM (@latency only fresh)
    WHERE ($quantity IS NULL OR quantity = $quantity) AND ($engine_id IS NULL OR engine_id = $engine_id)
),
rolled AS NOT MATERIALIZED (
    SELECT * FROM ((@latency only rolled) UNION ALL BY NAME (FROM fresh))
    WHERE ($quantity IS NULL OR quantity = $quantity) AND ($engine_id IS NULL OR engine_id = $engine_id)
),
layout AS (
    SELECT engine_id, quantity, bounds, bounds::DOUBLE[] AS les FROM (SELECT DISTINCT engine_id, quantity, bounds FROM rolled)
),
bound AS (
    SELECT engine_id, quantity, bounds, unnest(les) AS le, generate_subscripts(les, 1) AS place FROM layout
),
-- the bounds that all histograms of a line have; places: where they stand, NULL for all
line AS MATERIALIZED (
    SELECT engine_id, quantity, bounds, list(le ORDER BY le) AS les,
        CASE WHEN any_value(layouts) > 1 THEN list(place ORDER BY le) END AS places,
        dense_rank() OVER (ORDER BY engine_id, quantity) AS line
    FROM bound
    JOIN (SELECT engine_id, quantity, le, count(*) AS times FROM bound GROUP BY engine_id, quantity, le) AS t
        USING (engine_id, quantity, le)
    JOIN (SELECT engine_id, quantity, count(*) AS layouts FROM layout GROUP BY engine_id, quantity) AS n
        USING (engine_id, quantity)
    WHERE times = layouts
    GROUP BY engine_id, quantity, bounds
),
part AS MATERIALIZED (
    SELECT l.line, CASE WHEN $bucket_seconds = 0 THEN r.last_ts ELSE chart_time(r.ts, $start, $bucket_seconds) END
            AS bucket_ts,
        r.first_ts, r.last_ts, r.seconds_increase,
        CASE WHEN l.places IS NULL THEN r.observations_increase ELSE list_select(r.observations_increase, l.places) END
            AS counts
    FROM rolled AS r JOIN line AS l USING (engine_id, quantity, bounds)
),
merged AS (
    SELECT line, bucket_ts, place, sum(observations)::BIGINT AS observations
    FROM (SELECT line, bucket_ts, unnest(counts) AS observations, generate_subscripts(counts, 1) AS place FROM part)
    GROUP BY line, bucket_ts, place
),
span AS (
    SELECT line, bucket_ts, min(first_ts) AS first_ts, max(last_ts) AS last_ts, sum(counts[-1])::BIGINT AS total,
        CASE WHEN count(*) = count(seconds_increase) THEN sum(seconds_increase) END AS seconds
    FROM part GROUP BY line, bucket_ts
),
name AS (
    SELECT line, any_value(engine_id) AS engine_id, any_value(quantity) AS quantity, any_value(les) AS les
    FROM line GROUP BY line
),
-- the first bucket that reaches each quantile
reached AS (
    SELECT line, bucket_ts, list(observations ORDER BY place) AS counts,
        min(place) FILTER (observations >= 0.5e0 * total) AS place50,
        min(place) FILTER (observations >= 0.95e0 * total) AS place95,
        min(place) FILTER (observations >= 0.99e0 * total) AS place99
    FROM merged JOIN span USING (line, bucket_ts)
    GROUP BY line, bucket_ts
),
-- its bounds, and what was observed up to them
edge AS (
    SELECT engine_id, quantity, first_ts, last_ts, seconds, bucket_ts, total,
        les[place50] AS le50,
        coalesce(les[place50 - 1], CASE WHEN NOT isinf(les[place50]) THEN least(0, les[place50]) END) AS low50,
        counts[place50] AS upto50, coalesce(counts[place50 - 1], 0) AS below50,
        les[place95] AS le95,
        coalesce(les[place95 - 1], CASE WHEN NOT isinf(les[place95]) THEN least(0, les[place95]) END) AS low95,
        counts[place95] AS upto95, coalesce(counts[place95 - 1], 0) AS below95,
        les[place99] AS le99,
        coalesce(les[place99 - 1], CASE WHEN NOT isinf(les[place99]) THEN least(0, les[place99]) END) AS low99,
        counts[place99] AS upto99, coalesce(counts[place99 - 1], 0) AS below99
    FROM reached JOIN span USING (line, bucket_ts) JOIN name USING (line)
),
point AS (
    SELECT engine_id, quantity, first_ts, last_ts, bucket_ts, total::DOUBLE AS "count",
        seconds / nullif(total, 0) AS mean_seconds,
        CASE WHEN total > 0 THEN CASE WHEN isinf(le50) THEN low50
            ELSE low50 + (le50 - low50) * (0.5e0 * total - below50) / (upto50 - below50) END END AS p50_seconds,
        CASE WHEN total > 0 THEN low50 END AS p50_low_seconds,
        CASE WHEN total > 0 AND NOT isinf(le50) THEN le50 END AS p50_high_seconds,
        CASE WHEN total > 0 THEN CASE WHEN isinf(le95) THEN low95
            ELSE low95 + (le95 - low95) * (0.95e0 * total - below95) / (upto95 - below95) END END AS p95_seconds,
        CASE WHEN total > 0 THEN low95 END AS p95_low_seconds,
        CASE WHEN total > 0 AND NOT isinf(le95) THEN le95 END AS p95_high_seconds,
        CASE WHEN total > 0 THEN CASE WHEN isinf(le99) THEN low99
            ELSE low99 + (le99 - low99) * (0.99e0 * total - below99) / (upto99 - below99) END END AS p99_seconds,
        CASE WHEN total > 0 THEN low99 END AS p99_low_seconds,
        CASE WHEN total > 0 AND NOT isinf(le99) THEN le99 END AS p99_high_seconds
    FROM edge
),
gap AS (
    SELECT engine_id, quantity,
        chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY engine_id, quantity ORDER BY bucket_ts), $gap_seconds)
        AS bucket_ts
    FROM point
),
drawn AS (
    FROM point UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT p.bucket_ts AS ts, p.engine_id, e.label, p.quantity, p."count", p.mean_seconds,
    p.p50_seconds, p.p50_low_seconds, p.p50_high_seconds,
    p.p95_seconds, p.p95_low_seconds, p.p95_high_seconds,
    p.p99_seconds, p.p99_low_seconds, p.p99_high_seconds
FROM drawn AS p LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY p.engine_id, p.quantity, p.bucket_ts
