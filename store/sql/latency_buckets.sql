-- The merged histograms behind the query `latency`: observations at or below each bound that all epochs have.
WITH part AS (
    SELECT engine_id, epoch_id, quantity, le, sum(observations)::DOUBLE AS observations
    FROM (@latency_part)
    GROUP BY engine_id, epoch_id, quantity, le
),
merged AS (
    SELECT engine_id, quantity, le, sum(observations) AS cumulative_count, count(*) AS epochs
    FROM part
    GROUP BY engine_id, quantity, le
)
SELECT engine_id, quantity, le, cumulative_count
FROM merged
QUALIFY epochs = max(epochs) OVER (PARTITION BY engine_id, quantity)
    AND max(cumulative_count) OVER (PARTITION BY engine_id, quantity) > 0
ORDER BY engine_id, quantity, le
