-- Latency over time: the observations of each bucket of time, merged over epochs and minutes, never averaged.
-- Quantiles follow the rule of latency.sql. Where histograms of one engine have different bounds in the range, only
-- those that all of them have are used. A bucket without observations has count 0 and no quantiles.
WITH rolled AS MATERIALIZED (
    SELECT * FROM (@latency)
    WHERE ($quantity IS NULL OR quantity = $quantity) AND ($engine_id IS NULL OR engine_id = $engine_id)
),
layout AS (
    SELECT engine_id, quantity, bounds, bounds::DOUBLE[] AS les FROM (SELECT DISTINCT engine_id, quantity, bounds FROM rolled)
),
bound AS (
    SELECT engine_id, quantity, bounds, unnest(les) AS le, generate_subscripts(les, 1) AS place
    FROM layout
),
shared AS (
    SELECT engine_id, quantity, bounds, list(place ORDER BY le) AS places, list(le ORDER BY le) AS les
    FROM (
        SELECT *, count(*) OVER (PARTITION BY engine_id, quantity, le) AS times FROM bound
    )
    JOIN (SELECT engine_id, quantity, count(*) AS layouts FROM layout GROUP BY engine_id, quantity) AS n
        USING (engine_id, quantity)
    WHERE times = n.layouts
    GROUP BY engine_id, quantity, bounds
),
line AS (
    SELECT *, dense_rank() OVER (ORDER BY engine_id, quantity) AS line FROM shared
),
part AS (
    SELECT l.line, CASE WHEN $bucket_seconds = 0 THEN r.last_ts ELSE chart_time(r.ts, $start, $bucket_seconds) END
            AS bucket_ts,
        r.first_ts, r.last_ts, r.seconds_increase, l.places, r.observations_increase
    FROM rolled AS r JOIN line AS l USING (engine_id, quantity, bounds)
),
cell AS (
    SELECT line, bucket_ts, unnest(list_select(observations_increase, places)) AS observations,
        generate_subscripts(places, 1) AS place
    FROM part
),
merged AS (
    SELECT line, bucket_ts, place, sum(observations)::BIGINT AS observations FROM cell GROUP BY line, bucket_ts, place
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
point AS (
    SELECT n.engine_id, n.quantity, h.bucket_ts, s.first_ts, s.last_ts, h.counts[-1]::DOUBLE AS "count",
        s.seconds / nullif(h.counts[-1], 0) AS mean_seconds,
        CASE WHEN h.counts[-1] > 0 THEN h.counts END AS told, n.les,
        list_position(list_transform(told, lambda c: c >= 0.5 * told[-1]), true) AS p50,
        CASE WHEN isinf(n.les[p50]) THEN n.les[p50 - 1] ELSE coalesce(n.les[p50 - 1], least(0, n.les[p50])) END
            AS p50_low_seconds,
        CASE WHEN NOT isinf(n.les[p50]) THEN n.les[p50] END AS p50_high_seconds,
        CASE WHEN isinf(n.les[p50]) THEN n.les[p50 - 1]
            ELSE p50_low_seconds + (n.les[p50] - p50_low_seconds) * (0.5 * told[-1] - coalesce(told[p50 - 1], 0))
                / (told[p50] - coalesce(told[p50 - 1], 0)) END AS p50_seconds,
        list_position(list_transform(told, lambda c: c >= 0.95 * told[-1]), true) AS p95,
        CASE WHEN isinf(n.les[p95]) THEN n.les[p95 - 1] ELSE coalesce(n.les[p95 - 1], least(0, n.les[p95])) END
            AS p95_low_seconds,
        CASE WHEN NOT isinf(n.les[p95]) THEN n.les[p95] END AS p95_high_seconds,
        CASE WHEN isinf(n.les[p95]) THEN n.les[p95 - 1]
            ELSE p95_low_seconds + (n.les[p95] - p95_low_seconds) * (0.95 * told[-1] - coalesce(told[p95 - 1], 0))
                / (told[p95] - coalesce(told[p95 - 1], 0)) END AS p95_seconds,
        list_position(list_transform(told, lambda c: c >= 0.99 * told[-1]), true) AS p99,
        CASE WHEN isinf(n.les[p99]) THEN n.les[p99 - 1] ELSE coalesce(n.les[p99 - 1], least(0, n.les[p99])) END
            AS p99_low_seconds,
        CASE WHEN NOT isinf(n.les[p99]) THEN n.les[p99] END AS p99_high_seconds,
        CASE WHEN isinf(n.les[p99]) THEN n.les[p99 - 1]
            ELSE p99_low_seconds + (n.les[p99] - p99_low_seconds) * (0.99 * told[-1] - coalesce(told[p99 - 1], 0))
                / (told[p99] - coalesce(told[p99 - 1], 0)) END AS p99_seconds
    FROM histogram AS h JOIN span AS s USING (line, bucket_ts) JOIN name AS n USING (line)
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
