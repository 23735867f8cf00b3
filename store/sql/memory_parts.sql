-- What the memory of each engine is made of, as of $at: the newest set of parts of its newest life.
-- 'held' is what its processes hold in that place (process_memory); 'rest' is held less all parts, and not known where
-- the parts are more than is held; 'kv_in_use' is kv_reserved x kv_used_fraction of a sample of the last two minutes.
WITH newest AS (
    SELECT engine_id, max(ts) AS ts FROM memory_part WHERE ts <= $at GROUP BY engine_id
),
life AS (
    SELECT engine_id, epoch_id FROM epoch_latest WHERE first_seen <= $at
    QUALIFY row_number() OVER (PARTITION BY engine_id ORDER BY sequence DESC) = 1
),
told AS (
    SELECT m.* FROM memory_part AS m JOIN newest AS n USING (engine_id, ts) SEMI JOIN life USING (engine_id, epoch_id)
),
sample AS (
    SELECT engine_id, arg_max(kv_used_fraction, ts) AS kv_used_fraction, arg_max(epoch_id, ts) AS epoch_id
    FROM engine_sample
    WHERE ts > $at - INTERVAL 2 MINUTE AND ts <= $at AND kv_used_fraction IS NOT NULL
    GROUP BY engine_id
),
in_use AS (
    SELECT t.ts, t.host, t.engine_id, t.epoch_id, 'kv_in_use' AS part, t.place,
        round(t.memory_bytes * s.kv_used_fraction)::BIGINT AS memory_bytes, true AS derived,
        'KV cache reserved x share of it in use' AS source
    FROM told AS t JOIN sample AS s USING (engine_id, epoch_id)
    WHERE t.part = 'kv_reserved' AND t.memory_bytes IS NOT NULL
),
held AS (
    SELECT t.ts, t.host, t.engine_id, t.epoch_id, 'held' AS part, t.place,
        CASE t.place WHEN 'device' THEN h.device_memory_bytes ELSE h.host_memory_bytes END AS memory_bytes,
        false AS derived,
        coalesce(CASE t.place WHEN 'device' THEN h.device_memory_method ELSE h.host_memory_method END, 'none') AS source,
        t.known_bytes
    FROM (
        SELECT any_value(ts) AS ts, any_value(host) AS host, engine_id, epoch_id, place, sum(memory_bytes) AS known_bytes
        FROM told WHERE place IS NOT NULL GROUP BY engine_id, epoch_id, place
    ) AS t JOIN engine_memory_at($at, 60) AS h USING (engine_id)
),
rest AS (
    SELECT ts, host, engine_id, epoch_id, 'rest' AS part, place,
        CASE WHEN known_bytes <= memory_bytes THEN memory_bytes - known_bytes END::BIGINT AS memory_bytes,
        true AS derived,
        CASE WHEN known_bytes <= memory_bytes THEN 'held less the parts that are known'
            WHEN place = 'host' THEN 'the parts are more than is resident: pages that were never touched, or dropped, are not in it'
            ELSE 'the parts are more than the processes hold: one of the figures is not exact'
        END AS source
    FROM held WHERE known_bytes IS NOT NULL AND memory_bytes IS NOT NULL
)
SELECT p.ts, p.host, p.engine_id, e.label, p.epoch_id, p.part, p.place, p.memory_bytes, p.derived, p.source
FROM (
    FROM told UNION ALL BY NAME FROM in_use UNION ALL BY NAME (SELECT * EXCLUDE (known_bytes) FROM held)
    UNION ALL BY NAME FROM rest
) AS p
LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY p.engine_id, p.place NULLS LAST, p.part
