-- What the calculator predicted of a running engine, beside what was measured.
CREATE TABLE memory_plan (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    engine VARCHAR NOT NULL,
    engine_version VARCHAR,
    model VARCHAR,
    model_file VARCHAR,
    part VARCHAR NOT NULL,
    unit VARCHAR NOT NULL,
    predicted_low DOUBLE,
    predicted_high DOUBLE,
    measured DOUBLE,
    measured_method VARCHAR,
    error_fraction DOUBLE,
    reason VARCHAR,
    document VARCHAR
);
COMMENT ON TABLE memory_plan IS 'predicted against measured memory of running engines, one row a part; written once a life of the engine and again when a figure changes by more than 1 %';
COMMENT ON COLUMN memory_plan.ts IS 'time of the comparison, UTC';
COMMENT ON COLUMN memory_plan.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN memory_plan.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN memory_plan.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN memory_plan.engine IS 'kind of the engine: vllm, llama.cpp, ...';
COMMENT ON COLUMN memory_plan.engine_version IS 'version as the engine tells it';
COMMENT ON COLUMN memory_plan.model IS 'model as the plan names it';
COMMENT ON COLUMN memory_plan.model_file IS 'file, folder or catalogue entry that the facts of the model were read from';
COMMENT ON COLUMN memory_plan.part IS 'what is compared: host memory, memory of GPU 0, KV cache, ...; plan where no plan could be made';
COMMENT ON COLUMN memory_plan.unit IS 'unit of the four figures: bytes | tokens';
COMMENT ON COLUMN memory_plan.predicted_low IS 'lower bound of the prediction, in the unit of the row';
COMMENT ON COLUMN memory_plan.predicted_high IS 'upper bound; equal to the lower one where the rule is exact';
COMMENT ON COLUMN memory_plan.measured IS 'what the collector measured, in the unit of the row';
COMMENT ON COLUMN memory_plan.measured_method IS 'how it was measured: rss | nvml_process | the engine''s own figure | llama-fit-params ...';
COMMENT ON COLUMN memory_plan.error_fraction IS '0 where the measurement lies within the prediction, else its distance from the nearer bound as a share of the measurement; positive: predicted too much';
COMMENT ON COLUMN memory_plan.reason IS 'why a figure is missing, or what the comparison leaves out';
COMMENT ON COLUMN memory_plan.document IS 'JSON: the whole plan, on the first row of a comparison';
