-- The newest offer of each quantity in the newest epoch of each engine.
SELECT o.engine_id, o.quantity, o.offer, o.source, o.reason, o.remedy, o.ts
FROM quantity_offer AS o
JOIN (
    FROM epoch_latest QUALIFY row_number() OVER (PARTITION BY engine_id ORDER BY sequence DESC) = 1
) AS l ON l.engine_id = o.engine_id AND l.epoch_id = o.epoch_id
WHERE $engine_id IS NULL OR o.engine_id = $engine_id
QUALIFY row_number() OVER (PARTITION BY o.engine_id, o.quantity ORDER BY o.rowid DESC) = 1
ORDER BY o.engine_id, o.quantity
