-- Latency over time: the observations of each bucket of time, merged over epochs and minutes, never averaged.
-- Quantiles follow the rule of latency.sql. Where histograms of one engine have different bounds in the range, only
-- those that all of them have are used. A bucket without observations has count 0 and no quantiles.
WITH rolled AS NOT MATERIALIZED (
    SELECT * FROM (@latency)
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
histogram AS (
    SELECT line, bucket_ts, list(observations ORDER BY place) AS counts FROM merged GROUP BY line, bucket_ts
),
span AS (
    SELECT line, bucket_ts, min(first_ts) AS first_ts, max(last_ts) AS last_ts,
        CASE WHEN count(*) = count(seconds_increase) THEN sum(seconds_increase) END AS seconds
    FROM part GROUP BY line, bucket_ts
),
name AS (
    SELECT line, any_value(engine_id) AS engine_id, any_value(quantity) AS quantity, any_value(les) AS les
    FROM line GROUP BY line
),
-- the first bucket that reaches each quantile
place AS MATERIALIZED (
    SELECT h.line, h.bucket_ts, q.q, h.counts, h.counts[-1] AS total,
        list_position(list_transform(h.counts, lambda c: c >= q.q * h.counts[-1]), true) AS place
    FROM histogram AS h CROSS JOIN (VALUES (0.5::DOUBLE), (0.95::DOUBLE), (0.99::DOUBLE)) AS q(q)
),
edge AS MATERIALIZED (
    SELECT p.line, p.bucket_ts, p.q, p.total, n.les[p.place] AS high, n.les[p.place - 1] AS lower_le,
        p.counts[p.place] AS cumulative, coalesce(p.counts[p.place - 1], 0) AS below
    FROM place AS p JOIN name AS n USING (line)
),
estimate AS (
    SELECT line, bucket_ts, q, total,
        CASE WHEN total > 0 AND NOT isinf(high) THEN high END AS high,
        CASE WHEN total > 0 THEN CASE WHEN isinf(high) THEN lower_le ELSE coalesce(lower_le, least(0, high)) END END AS low,
        CASE WHEN total = 0 THEN NULL WHEN isinf(high) THEN lower_le
            ELSE coalesce(lower_le, least(0, high)) + (high - coalesce(lower_le, least(0, high)))
                * (q * total - below) / (cumulative - below) END AS estimate
    FROM edge
),
wide AS (
    SELECT line, bucket_ts, any_value(total)::DOUBLE AS "count",
        any_value(estimate) FILTER (q = 0.5) AS p50_seconds, any_value(low) FILTER (q = 0.5) AS p50_low_seconds,
        any_value(high) FILTER (q = 0.5) AS p50_high_seconds,
        any_value(estimate) FILTER (q = 0.95) AS p95_seconds, any_value(low) FILTER (q = 0.95) AS p95_low_seconds,
        any_value(high) FILTER (q = 0.95) AS p95_high_seconds,
        any_value(estimate) FILTER (q = 0.99) AS p99_seconds, any_value(low) FILTER (q = 0.99) AS p99_low_seconds,
        any_value(high) FILTER (q = 0.99) AS p99_high_seconds
    FROM estimate GROUP BY line, bucket_ts
),
point AS (
    SELECT n.engine_id, n.quantity, s.first_ts, s.last_ts, s.seconds / nullif(w."count", 0) AS mean_seconds,
        w.* EXCLUDE (line)
    FROM wide AS w JOIN span AS s USING (line, bucket_ts) JOIN name AS n USING (line)
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
