-- Tables of the foundation: one a row type of store.model, columns in the order of its fields.
-- No keys and no indexes: replaying them from a write-ahead log after a crash has a history of defects.

CREATE TABLE engine (
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    url VARCHAR NOT NULL,
    found_by VARCHAR NOT NULL,
    first_seen TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE engine IS 'engines; written again when a fact changes: the row written last holds';
COMMENT ON COLUMN engine.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN engine.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN engine.kind IS 'adapter: vllm, llama.cpp, ...';
COMMENT ON COLUMN engine.label IS 'name that a person recognises';
COMMENT ON COLUMN engine.url IS 'base URL';
COMMENT ON COLUMN engine.found_by IS 'how it was found';
COMMENT ON COLUMN engine.first_seen IS 'when a collector first saw it, UTC';

CREATE TABLE epoch (
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    started TIMESTAMPTZ NOT NULL,
    started_is_process_start BOOLEAN NOT NULL,
    first_seen TIMESTAMPTZ NOT NULL,
    pid BIGINT,
    version VARCHAR,
    model_id VARCHAR,
    model_path VARCHAR,
    quantization VARCHAR,
    max_context_tokens BIGINT,
    slots BIGINT,
    arguments VARCHAR,
    facts VARCHAR
);
COMMENT ON TABLE epoch IS 'lives of engine processes; a later row of the same epoch_id corrects the earlier one';
COMMENT ON COLUMN epoch.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN epoch.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN epoch.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN epoch.started IS 'start of the process where known, else when it was first seen, UTC';
COMMENT ON COLUMN epoch.started_is_process_start IS 'whether started is the start of the process';
COMMENT ON COLUMN epoch.first_seen IS 'when a collector first saw it, UTC';
COMMENT ON COLUMN epoch.pid IS 'process id';
COMMENT ON COLUMN epoch.version IS 'version as the engine tells it';
COMMENT ON COLUMN epoch.model_id IS 'model name as served';
COMMENT ON COLUMN epoch.model_path IS 'where the weights were loaded from';
COMMENT ON COLUMN epoch.quantization IS 'quantisation as the engine or its arguments tell it';
COMMENT ON COLUMN epoch.max_context_tokens IS 'tokens per request';
COMMENT ON COLUMN epoch.slots IS 'requests that can run at once';
COMMENT ON COLUMN epoch.arguments IS 'JSON list: command line with secrets redacted';
COMMENT ON COLUMN epoch.facts IS 'JSON object: further facts the engine told';

CREATE TABLE engine_sample (
    ts TIMESTAMPTZ NOT NULL,
    monotonic_seconds DOUBLE NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    detail VARCHAR,
    generation_tokens_total DOUBLE,
    generation_live_tokens_total DOUBLE,
    prompt_tokens_total DOUBLE,
    prompt_with_cached_tokens_total DOUBLE,
    prefix_cache_query_tokens_total DOUBLE,
    prefix_cache_hit_tokens_total DOUBLE,
    requests_finished_total DOUBLE,
    preemptions_total DOUBLE,
    generation_seconds_total DOUBLE,
    prompt_seconds_total DOUBLE,
    requests_running DOUBLE,
    requests_waiting DOUBLE,
    kv_used_fraction DOUBLE,
    kv_capacity_tokens DOUBLE
);
COMMENT ON TABLE engine_sample IS 'counters and gauges of one engine at one moment; counters are raw';
COMMENT ON COLUMN engine_sample.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN engine_sample.monotonic_seconds IS 'seconds on the collector host''s monotonic clock; differences are elapsed time that no clock change bends';
COMMENT ON COLUMN engine_sample.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN engine_sample.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN engine_sample.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN engine_sample.state IS 'ready | loading | busy | sleeping | unauthorised | metrics_disabled | unreachable | stopped';
COMMENT ON COLUMN engine_sample.detail IS 'what was observed and what to do about it';
COMMENT ON COLUMN engine_sample.generation_tokens_total IS 'tokens: output tokens as the engine counts them; some engines add them only when a request ends';
COMMENT ON COLUMN engine_sample.generation_live_tokens_total IS 'tokens: a counter that moves while requests run, where the settled one does not';
COMMENT ON COLUMN engine_sample.prompt_tokens_total IS 'tokens: prompt tokens that were prefilled; tokens served from a prefix cache are not in it';
COMMENT ON COLUMN engine_sample.prompt_with_cached_tokens_total IS 'tokens: prompt tokens of all requests, whether computed or served from a prefix cache';
COMMENT ON COLUMN engine_sample.prefix_cache_query_tokens_total IS 'tokens: prompt tokens looked up in the prefix cache';
COMMENT ON COLUMN engine_sample.prefix_cache_hit_tokens_total IS 'tokens: prompt tokens served from the prefix cache';
COMMENT ON COLUMN engine_sample.requests_finished_total IS 'requests: requests that ended, aborted ones included where the engine counts them';
COMMENT ON COLUMN engine_sample.preemptions_total IS 'events: running requests put back because KV cache ran out';
COMMENT ON COLUMN engine_sample.generation_seconds_total IS 'seconds: time spent generating, summed over the requests that ran at once';
COMMENT ON COLUMN engine_sample.prompt_seconds_total IS 'seconds: time spent on prompts';
COMMENT ON COLUMN engine_sample.requests_running IS 'requests: requests that the engine is computing now';
COMMENT ON COLUMN engine_sample.requests_waiting IS 'requests: requests accepted but not yet started';
COMMENT ON COLUMN engine_sample.kv_used_fraction IS 'fraction: share of the KV cache held by running requests';
COMMENT ON COLUMN engine_sample.kv_capacity_tokens IS 'tokens: tokens that the KV cache can hold';

CREATE TABLE quantity_offer (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    quantity VARCHAR NOT NULL,
    offer VARCHAR NOT NULL,
    source VARCHAR,
    reason VARCHAR,
    remedy VARCHAR
);
COMMENT ON TABLE quantity_offer IS 'where a quantity comes from or why it is missing; written when it changes';
COMMENT ON COLUMN quantity_offer.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN quantity_offer.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN quantity_offer.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN quantity_offer.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN quantity_offer.quantity IS 'canonical quantity';
COMMENT ON COLUMN quantity_offer.offer IS 'offered | not_offered | disabled | unknown';
COMMENT ON COLUMN quantity_offer.source IS 'metric or endpoint the value is read from';
COMMENT ON COLUMN quantity_offer.reason IS 'why it is not offered';
COMMENT ON COLUMN quantity_offer.remedy IS 'what a person can do about it';

CREATE TABLE latency_bucket (
    ts TIMESTAMPTZ NOT NULL,
    monotonic_seconds DOUBLE NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    quantity VARCHAR NOT NULL,
    le DOUBLE NOT NULL,
    cumulative_count DOUBLE NOT NULL,
    sum_seconds DOUBLE
);
COMMENT ON TABLE latency_bucket IS 'buckets of cumulative histograms; all buckets of one histogram share one ts';
COMMENT ON COLUMN latency_bucket.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN latency_bucket.monotonic_seconds IS 'seconds on the collector host''s monotonic clock; differences are elapsed time that no clock change bends';
COMMENT ON COLUMN latency_bucket.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN latency_bucket.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN latency_bucket.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN latency_bucket.quantity IS 'canonical quantity';
COMMENT ON COLUMN latency_bucket.le IS 'upper bound of the bucket in seconds, inclusive; infinity for the last';
COMMENT ON COLUMN latency_bucket.cumulative_count IS 'observations at or below le since the process started';
COMMENT ON COLUMN latency_bucket.sum_seconds IS 'sum of all observations in seconds, the same on every bucket of one histogram';

CREATE TABLE device (
    host VARCHAR NOT NULL,
    device_id VARCHAR NOT NULL,
    vendor VARCHAR NOT NULL,
    "index" BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    memory_total_bytes BIGINT,
    driver_version VARCHAR,
    first_seen TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE device IS 'GPUs; written again when a fact changes: the row written last holds';
COMMENT ON COLUMN device.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN device.device_id IS 'the driver''s own unique name of the device';
COMMENT ON COLUMN device.vendor IS 'nvidia, amd, ...';
COMMENT ON COLUMN device."index" IS 'the driver''s number of the device';
COMMENT ON COLUMN device.name IS 'product name';
COMMENT ON COLUMN device.memory_total_bytes IS 'bytes';
COMMENT ON COLUMN device.driver_version IS 'version of the driver';
COMMENT ON COLUMN device.first_seen IS 'when a collector first saw it, UTC';

CREATE TABLE device_sample (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    device_id VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    detail VARCHAR,
    memory_total_bytes BIGINT,
    memory_used_bytes BIGINT,
    memory_reserved_bytes BIGINT,
    utilisation_fraction DOUBLE,
    memory_utilisation_fraction DOUBLE,
    power_watts DOUBLE,
    power_limit_watts DOUBLE,
    temperature_celsius DOUBLE,
    sm_clock_hertz DOUBLE,
    memory_clock_hertz DOUBLE,
    energy_joules_total DOUBLE
);
COMMENT ON TABLE device_sample IS 'one device at one moment';
COMMENT ON COLUMN device_sample.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN device_sample.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN device_sample.device_id IS 'the driver''s own unique name of the device';
COMMENT ON COLUMN device_sample.state IS 'ok | partial | driver_missing | driver_unusable | device_lost | error';
COMMENT ON COLUMN device_sample.detail IS 'what was observed and what to do about it';
COMMENT ON COLUMN device_sample.memory_total_bytes IS 'bytes';
COMMENT ON COLUMN device_sample.memory_used_bytes IS 'bytes in use, the driver''s own reserve included';
COMMENT ON COLUMN device_sample.memory_reserved_bytes IS 'bytes the driver keeps for itself';
COMMENT ON COLUMN device_sample.utilisation_fraction IS '0..1, share of time in which a kernel ran';
COMMENT ON COLUMN device_sample.memory_utilisation_fraction IS '0..1, share of time in which memory was read or written';
COMMENT ON COLUMN device_sample.power_watts IS 'watts';
COMMENT ON COLUMN device_sample.power_limit_watts IS 'watts';
COMMENT ON COLUMN device_sample.temperature_celsius IS 'degrees Celsius';
COMMENT ON COLUMN device_sample.sm_clock_hertz IS 'hertz';
COMMENT ON COLUMN device_sample.memory_clock_hertz IS 'hertz';
COMMENT ON COLUMN device_sample.energy_joules_total IS 'joules since the driver was loaded, a counter';

CREATE TABLE host_sample (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    cpu_fraction DOUBLE,
    cpu_count BIGINT,
    load_1m DOUBLE,
    memory_total_bytes BIGINT,
    memory_available_bytes BIGINT,
    memory_used_bytes BIGINT,
    swap_total_bytes BIGINT,
    swap_used_bytes BIGINT
);
COMMENT ON TABLE host_sample IS 'the host at one moment';
COMMENT ON COLUMN host_sample.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN host_sample.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN host_sample.cpu_fraction IS '0..1, share of all cores that was busy since the previous sample';
COMMENT ON COLUMN host_sample.cpu_count IS 'logical cores';
COMMENT ON COLUMN host_sample.load_1m IS 'load average of one minute';
COMMENT ON COLUMN host_sample.memory_total_bytes IS 'bytes';
COMMENT ON COLUMN host_sample.memory_available_bytes IS 'bytes';
COMMENT ON COLUMN host_sample.memory_used_bytes IS 'bytes';
COMMENT ON COLUMN host_sample.swap_total_bytes IS 'bytes';
COMMENT ON COLUMN host_sample.swap_used_bytes IS 'bytes';

CREATE TABLE process_memory (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR,
    epoch_id VARCHAR,
    device_id VARCHAR,
    pid BIGINT,
    process_name VARCHAR,
    method VARCHAR NOT NULL,
    memory_bytes BIGINT,
    cpu_cores DOUBLE,
    process_count BIGINT
);
COMMENT ON TABLE process_memory IS 'memory held by a process tree (an engine) or by one process';
COMMENT ON COLUMN process_memory.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN process_memory.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN process_memory.engine_id IS 'engine that holds the memory; NULL: no engine that is known';
COMMENT ON COLUMN process_memory.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN process_memory.device_id IS 'device that the memory is on; NULL: host memory';
COMMENT ON COLUMN process_memory.pid IS 'process id';
COMMENT ON COLUMN process_memory.process_name IS 'name of the process';
COMMENT ON COLUMN process_memory.method IS 'how it was measured: nvml_process | device_delta | rss | unified';
COMMENT ON COLUMN process_memory.memory_bytes IS 'bytes held';
COMMENT ON COLUMN process_memory.cpu_cores IS 'CPU seconds per second since the previous sample';
COMMENT ON COLUMN process_memory.process_count IS 'processes in the tree';

CREATE TABLE source_health (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    source_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    duration_seconds DOUBLE,
    lateness_seconds DOUBLE,
    interval_seconds DOUBLE,
    detail VARCHAR,
    found_by VARCHAR
);
COMMENT ON TABLE source_health IS 'how one sampling of one source went';
COMMENT ON COLUMN source_health.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN source_health.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN source_health.source_id IS 'engine:ID, device:VENDOR, host, discovery, store';
COMMENT ON COLUMN source_health.kind IS 'engine | device | host | discovery | store';
COMMENT ON COLUMN source_health.state IS 'how the sampling went';
COMMENT ON COLUMN source_health.duration_seconds IS 'seconds that the sampling took';
COMMENT ON COLUMN source_health.lateness_seconds IS 'seconds after its due time at which the sampling began';
COMMENT ON COLUMN source_health.interval_seconds IS 'seconds between samplings, as configured';
COMMENT ON COLUMN source_health.detail IS 'what was observed and what to do about it';
COMMENT ON COLUMN source_health.found_by IS 'how the source was found';

CREATE TABLE event (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR,
    epoch_id VARCHAR,
    device_id VARCHAR,
    kind VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    details VARCHAR
);
COMMENT ON TABLE event IS 'things that happened';
COMMENT ON COLUMN event.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN event.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN event.engine_id IS 'engine that the row is about; it keeps its identity over restarts';
COMMENT ON COLUMN event.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN event.device_id IS 'the driver''s own unique name of the device';
COMMENT ON COLUMN event.kind IS 'what happened, as a word';
COMMENT ON COLUMN event.text IS 'what happened, as a sentence';
COMMENT ON COLUMN event.details IS 'JSON object';
