-- How long each life of each engine took to start, the row written last of each, the newest life first.
SELECT s.ts, s.host, s.engine_id, e.label, s.epoch_id, s.started, s.ready_seconds, s.first_token_seconds,
    s.resolution_seconds, s.note
FROM (
    FROM startup WHERE $engine_id IS NULL OR engine_id = $engine_id
    QUALIFY row_number() OVER (PARTITION BY epoch_id ORDER BY rowid DESC) = 1
) AS s LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY s.started DESC, s.engine_id
