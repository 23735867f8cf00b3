-- What the memory of an engine is made of, and what the processes of an engine hold at a moment.
CREATE TABLE memory_part (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    place VARCHAR,
    memory_bytes BIGINT,
    derived BOOLEAN NOT NULL,
    source VARCHAR NOT NULL
);
COMMENT ON TABLE memory_part IS 'what an engine''s memory is made of; all parts of an engine are written anew when one changes, with one ts: the newest set holds';
COMMENT ON COLUMN memory_part.ts IS 'time from which the figures hold, UTC';
COMMENT ON COLUMN memory_part.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN memory_part.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN memory_part.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN memory_part.part IS 'weights | kv_reserved (the whole KV cache, recurrent states included) | graphs | models (weights and cache, where an engine tells only their sum)';
COMMENT ON COLUMN memory_part.place IS 'device: memory of GPUs | host: host memory | NULL: not known where';
COMMENT ON COLUMN memory_part.memory_bytes IS 'bytes, over all devices of the place; NULL: not known, and source says why';
COMMENT ON COLUMN memory_part.derived IS 'true: computed from other facts by the rule in source; false: the engine''s own figure';
COMMENT ON COLUMN memory_part.source IS 'where the figure is from or by which rule it was computed; why it is not known where memory_bytes is NULL';

COMMENT ON COLUMN process_memory.method IS 'how it was measured: nvml_process | fdinfo | unified | device_delta | rss; none: the driver does not tell, memory_bytes is NULL';

-- What the processes of each engine held at `moment`: the newest rows of the `seconds` before it.
-- A device whose rows of an engine ended more than 5 s before the engine's newest is one that the engine let go.
CREATE MACRO engine_memory_at(moment, seconds) AS TABLE
    WITH held AS (
        SELECT engine_id, device_id, ts, max(ts) OVER (PARTITION BY engine_id, device_id IS NULL) AS newest_ts,
            max(ts) OVER (PARTITION BY engine_id, device_id) AS device_ts, method, memory_bytes, cpu_cores, process_count
        FROM process_memory
        WHERE ts > moment - to_seconds(seconds) AND ts <= moment AND engine_id IS NOT NULL
    )
    SELECT engine_id,
        CASE WHEN count_if(device_id IS NOT NULL AND memory_bytes IS NULL) = 0
            THEN sum(memory_bytes) FILTER (device_id IS NOT NULL) END::BIGINT AS device_memory_bytes,
        string_agg(DISTINCT method, '+' ORDER BY method) FILTER (device_id IS NOT NULL) AS device_memory_method,
        CASE WHEN count_if(device_id IS NULL AND memory_bytes IS NULL) = 0
            THEN sum(memory_bytes) FILTER (device_id IS NULL) END::BIGINT AS host_memory_bytes,
        string_agg(DISTINCT method, '+' ORDER BY method) FILTER (device_id IS NULL) AS host_memory_method,
        sum(cpu_cores) FILTER (device_id IS NULL) AS cpu_cores,
        sum(process_count) FILTER (device_id IS NULL)::BIGINT AS process_count
    FROM held
    WHERE ts = device_ts AND ts > newest_ts - INTERVAL 5 SECOND
    GROUP BY engine_id;
