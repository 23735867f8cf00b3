-- How each source does. last_ok is looked for in the last day; NULL means that there was none.
-- A source in trouble counts as an error; one that has nothing to offer here (no driver), or that
-- tells that it is loading or asleep, does not.
WITH recent AS (
    SELECT source_id, arg_max(kind, ts) AS kind, arg_max(state, ts) AS state, max(ts) AS ts,
        arg_max_null(duration_seconds, ts) AS duration_seconds, arg_max_null(lateness_seconds, ts) AS lateness_seconds,
        arg_max_null(interval_seconds, ts) AS interval_seconds, arg_max_null(detail, ts) AS detail,
        arg_max_null(found_by, ts) AS found_by,
        max(ts) FILTER (state IN ('ok', 'ready')) AS last_ok,
        count(*) AS samples_10m,
        count_if(state NOT IN ('ok', 'ready', 'partial', 'loading', 'sleeping', 'driver_missing')) AS errors_10m,
        max(lateness_seconds) AS lateness_max_10m_seconds
    FROM source_health
    WHERE ts > $at - INTERVAL 10 MINUTE AND ts <= $at
    GROUP BY source_id
),
older AS (
    SELECT source_id, arg_max(kind, ts) AS kind, arg_max(state, ts) AS state, max(ts) AS ts,
        arg_max_null(duration_seconds, ts) AS duration_seconds, arg_max_null(lateness_seconds, ts) AS lateness_seconds,
        arg_max_null(interval_seconds, ts) AS interval_seconds, arg_max_null(detail, ts) AS detail,
        arg_max_null(found_by, ts) AS found_by,
        max(ts) FILTER (state IN ('ok', 'ready')) AS last_ok
    FROM source_health
    WHERE ts > $at - INTERVAL 1 DAY AND ts <= $at - INTERVAL 10 MINUTE
        AND source_id NOT IN (SELECT source_id FROM recent WHERE last_ok IS NOT NULL)
    GROUP BY source_id
),
both_parts AS (
    SELECT coalesce(r.source_id, o.source_id) AS source_id, r.source_id IS NOT NULL AS current, r, o
    FROM recent AS r FULL JOIN older AS o ON o.source_id = r.source_id
)
SELECT b.source_id,
    CASE WHEN current THEN r.kind ELSE o.kind END AS kind,
    CASE WHEN current THEN r.state ELSE o.state END AS state,
    CASE WHEN current THEN r.ts ELSE o.ts END AS ts,
    CASE WHEN current THEN r.duration_seconds ELSE o.duration_seconds END AS duration_seconds,
    CASE WHEN current THEN r.lateness_seconds ELSE o.lateness_seconds END AS lateness_seconds,
    CASE WHEN current THEN r.interval_seconds ELSE o.interval_seconds END AS interval_seconds,
    CASE WHEN current THEN r.detail ELSE o.detail END AS detail,
    CASE WHEN current THEN r.found_by ELSE o.found_by END AS found_by,
    coalesce(r.last_ok, o.last_ok) AS last_ok,
    coalesce(r.samples_10m, 0) AS samples_10m,
    coalesce(r.errors_10m, 0)::BIGINT AS errors_10m,
    r.lateness_max_10m_seconds AS lateness_max_10m_seconds,
    e.engine_id, e.label
FROM both_parts AS b LEFT JOIN engine_latest AS e ON b.source_id = 'engine:' || e.engine_id
ORDER BY b.source_id
