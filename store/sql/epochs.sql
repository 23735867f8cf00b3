-- Every life of every engine, newest first.
SELECT l.* EXCLUDE (sequence), e.label, e.kind
FROM epoch_latest AS l LEFT JOIN engine_latest AS e ON e.engine_id = l.engine_id
WHERE $engine_id IS NULL OR l.engine_id = $engine_id
ORDER BY l.first_seen DESC, l.sequence DESC
