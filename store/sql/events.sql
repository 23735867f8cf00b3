-- What happened, newest first.
SELECT v.ts, v.host, v.engine_id, e.label, v.device_id, v.epoch_id, v.kind, v.text, v.details
FROM event AS v LEFT JOIN engine_latest AS e ON e.engine_id = v.engine_id
WHERE v.ts >= $start AND v.ts <= $end AND ($engine_id IS NULL OR v.engine_id = $engine_id)
ORDER BY v.ts DESC, v.rowid DESC
LIMIT $limit
