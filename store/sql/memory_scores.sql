-- The newest comparison of each life of each engine, part by part, newest life first.
WITH newest AS (
    SELECT epoch_id, max(ts) AS ts FROM memory_plan GROUP BY epoch_id
)
SELECT m.ts, m.host, m.engine_id, e.label, m.epoch_id, m.engine, m.engine_version, m.model, m.model_file, m.part,
    m.unit, m.predicted_low, m.predicted_high, m.measured, m.measured_method, m.error_fraction, m.reason
FROM memory_plan AS m
JOIN newest AS n ON n.epoch_id = m.epoch_id AND n.ts = m.ts
LEFT JOIN engine_latest AS e ON e.engine_id = m.engine_id
WHERE $engine_id IS NULL OR m.engine_id = $engine_id
ORDER BY m.ts DESC, m.engine_id, m.rowid
LIMIT $limit
