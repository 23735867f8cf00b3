-- What other engines did from $start to $end: requests that ran, tokens that were generated, and what they share with
-- $engine_id: 'device' (both held memory of one), 'cpu' (both are processes of this host without a device), 'host' (both
-- are processes of this host, one of them on a device of its own), 'unknown' (the processes of one can't be seen).
-- Only pairs of samples that lie in the range as a whole count.
WITH seen AS (
    SELECT engine_id, count(requests_running) AS samples, count(*) FILTER (requests_running > 0) AS busy_samples,
        max(requests_running) AS requests_running_max
    FROM engine_sample
    WHERE ts >= $start AND ts <= $end AND engine_id <> $engine_id
    GROUP BY engine_id
),
made AS (
    SELECT engine_id, sum(increase) AS generation_tokens
    FROM engine_rate_between($start, $end)
    WHERE quantity = 'generation_tokens' AND engine_id <> $engine_id
        AND epoch(ts) - window_seconds >= epoch($start::TIMESTAMPTZ)
    GROUP BY engine_id
),
process AS (
    SELECT DISTINCT engine_id, device_id FROM process_memory
    WHERE ts >= $start AND ts <= $end AND engine_id IS NOT NULL AND coalesce(memory_bytes > 0, true)
),
mine AS (
    FROM process WHERE engine_id = $engine_id
)
SELECT s.engine_id, e.label, s.samples, s.busy_samples, s.requests_running_max, m.generation_tokens,
    CASE
        WHEN NOT EXISTS (FROM mine) OR NOT EXISTS (FROM process AS p WHERE p.engine_id = s.engine_id) THEN 'unknown'
        WHEN EXISTS (FROM process AS p JOIN mine USING (device_id) WHERE p.engine_id = s.engine_id) THEN 'device'
        WHEN EXISTS (
            FROM process AS p WHERE p.device_id IS NOT NULL AND p.engine_id IN (s.engine_id, $engine_id)
        ) THEN 'host'
        ELSE 'cpu'
    END AS shares
FROM seen AS s LEFT JOIN made AS m USING (engine_id) LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY s.engine_id
