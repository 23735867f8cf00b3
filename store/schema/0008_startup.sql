-- How long engines took from the start of their process until they were ready and served.
CREATE TABLE startup (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    started TIMESTAMPTZ NOT NULL,
    ready_seconds DOUBLE,
    first_token_seconds DOUBLE,
    resolution_seconds DOUBLE,
    note VARCHAR
);
COMMENT ON TABLE startup IS 'how long an engine took from the start of its process; written again when its first token is seen: the row written last of an epoch holds';
COMMENT ON COLUMN startup.ts IS 'when it was seen, UTC';
COMMENT ON COLUMN startup.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN startup.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN startup.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN startup.started IS 'start of the process where known, else when it was first seen, UTC';
COMMENT ON COLUMN startup.ready_seconds IS 'seconds from the start of the process to the first sample that found it ready; NULL: not known, note says why';
COMMENT ON COLUMN startup.first_token_seconds IS 'seconds from the start of the process to the first sample that found a generated token; NULL: none yet, or not known';
COMMENT ON COLUMN startup.resolution_seconds IS 'seconds by which the figures may be too high: from the sample before, which found it not so, to that sample';
COMMENT ON COLUMN startup.note IS 'why a figure is missing';
