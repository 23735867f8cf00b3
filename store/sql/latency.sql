-- Quantiles of the observations made in the window, from histogram buckets merged over epochs.
-- Where epochs have different buckets, only the bounds that all of them have are used: there, and
-- only there, the merged cumulative count is known.
-- A quantile is interpolated linearly inside its bucket, as Prometheus' histogram_quantile does; in
-- the last bucket (upper bound infinite) it is the bucket's lower bound, and pNN_high_seconds is NULL.
WITH part AS (
    SELECT engine_id, epoch_id, quantity, le, sum(observations)::DOUBLE AS observations,
        CASE WHEN count(*) = count(sum_seconds) THEN sum(sum_seconds) END AS sum_seconds
    FROM (@latency_part)
    GROUP BY engine_id, epoch_id, quantity, le
),
merged AS (
    SELECT engine_id, quantity, le, sum(observations) AS cumulative, count(*) AS epochs
    FROM part
    GROUP BY engine_id, quantity, le
),
total AS (
    SELECT engine_id, quantity, count(*) AS epochs, sum(observations) AS observations,
        CASE WHEN count(*) = count(sum_seconds) THEN sum(sum_seconds) END AS sum_seconds
    FROM part
    WHERE isinf(le)
    GROUP BY engine_id, quantity
),
bucket AS (
    SELECT m.engine_id, m.quantity, m.le, m.cumulative, t.observations,
        lag(m.le) OVER rising AS lower_le,
        coalesce(lag(m.cumulative) OVER rising, 0) AS below
    FROM merged AS m JOIN total AS t USING (engine_id, quantity)
    WHERE m.epochs = t.epochs AND t.observations > 0
    WINDOW rising AS (PARTITION BY m.engine_id, m.quantity ORDER BY m.le)
),
quantile AS (
    SELECT b.engine_id, b.quantity, q.q,
        -- the first bucket of a quantity that is never negative begins at 0
        CASE WHEN isinf(b.le) THEN b.lower_le ELSE coalesce(b.lower_le, least(0, b.le)) END AS low,
        CASE WHEN NOT isinf(b.le) THEN b.le END AS high,
        CASE WHEN isinf(b.le) THEN b.lower_le
            ELSE low + (b.le - low) * (q.q * b.observations - b.below) / (b.cumulative - b.below) END AS estimate
    FROM bucket AS b CROSS JOIN (VALUES (0.5::DOUBLE), (0.95::DOUBLE), (0.99::DOUBLE)) AS q(q)
    WHERE q.q * b.observations <= b.cumulative AND b.cumulative > b.below
    QUALIFY row_number() OVER (PARTITION BY b.engine_id, b.quantity, q.q ORDER BY b.le) = 1
)
SELECT t.engine_id, t.quantity, t.epochs, t.observations AS "count",
    t.sum_seconds / nullif(t.observations, 0) AS mean_seconds,
    p50.estimate AS p50_seconds, p50.low AS p50_low_seconds, p50.high AS p50_high_seconds,
    p95.estimate AS p95_seconds, p95.low AS p95_low_seconds, p95.high AS p95_high_seconds,
    p99.estimate AS p99_seconds, p99.low AS p99_low_seconds, p99.high AS p99_high_seconds
FROM total AS t
LEFT JOIN quantile AS p50 ON p50.engine_id = t.engine_id AND p50.quantity = t.quantity AND p50.q = 0.5
LEFT JOIN quantile AS p95 ON p95.engine_id = t.engine_id AND p95.quantity = t.quantity AND p95.q = 0.95
LEFT JOIN quantile AS p99 ON p99.engine_id = t.engine_id AND p99.quantity = t.quantity AND p99.q = 0.99
ORDER BY t.engine_id, t.quantity
