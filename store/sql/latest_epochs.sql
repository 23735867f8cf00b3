-- The newest life of each engine, with the engine's own facts. `first_seen` is the epoch's, `label` the
-- one that was written: a collector that starts again takes these rows up as its own.
SELECT l.* EXCLUDE (sequence), e.kind, e.given_label AS label, e.url, e.found_by, e.first_seen AS engine_first_seen
FROM (
    FROM epoch_latest QUALIFY row_number() OVER (PARTITION BY engine_id ORDER BY sequence DESC) = 1
) AS l JOIN engine_latest AS e ON e.engine_id = l.engine_id
ORDER BY l.engine_id
