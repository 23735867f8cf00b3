-- Load tests (runs, stages, requests, judgements, what they used) and saved reports. One table a row type of
-- store.loadtest_rows, columns in the order of its fields.

CREATE TABLE loadtest_run (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    started_by VARCHAR NOT NULL,
    began TIMESTAMPTZ,
    ended TIMESTAMPTZ,
    spec VARCHAR,
    client VARCHAR,
    detail VARCHAR,
    trusted BOOLEAN
);
COMMENT ON TABLE loadtest_run IS 'One load test, or one imported result file. Written again when it moves on: the row written last holds';
COMMENT ON COLUMN loadtest_run.ts IS 'when this row was written, UTC';
COMMENT ON COLUMN loadtest_run.host IS 'name of the host that the load came from';
COMMENT ON COLUMN loadtest_run.run_id IS 'sortable by time and unique, e.g. 20261201T091500Z-4f2a';
COMMENT ON COLUMN loadtest_run.name IS 'what a person calls it';
COMMENT ON COLUMN loadtest_run.state IS 'waiting | running | finished | stopped | failed | interrupted | imported';
COMMENT ON COLUMN loadtest_run.source IS 'engine-room | vllm bench serve | guidellm | aiperf | llama-bench | llama-benchy';
COMMENT ON COLUMN loadtest_run.started_by IS 'page | command line | import';
COMMENT ON COLUMN loadtest_run.began IS 'when the first request was sent; NULL: not yet, or the file does not say, UTC';
COMMENT ON COLUMN loadtest_run.ended IS 'when it was over, UTC';
COMMENT ON COLUMN loadtest_run.spec IS 'JSON object: what was asked for (workload, levels, repeats, seed, limits, SLO, endpoints)';
COMMENT ON COLUMN loadtest_run.client IS 'JSON object: how the load generator itself fared (lag, lateness, CPU, connections)';
COMMENT ON COLUMN loadtest_run.detail IS 'why it failed or what it waits for, in a sentence';
COMMENT ON COLUMN loadtest_run.trusted IS 'whether no judgement of severity ''failed'' stands against it; NULL: not judged yet';

CREATE TABLE loadtest_stage (
    ts TIMESTAMPTZ NOT NULL,
    ended TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    stage_id BIGINT NOT NULL,
    url VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    engine VARCHAR,
    engine_id VARCHAR,
    epoch_id VARCHAR,
    engine_version VARCHAR,
    model_id VARCHAR,
    mode VARCHAR NOT NULL,
    concurrency BIGINT,
    offered_requests_per_second DOUBLE,
    repeat BIGINT NOT NULL,
    window_begin TIMESTAMPTZ,
    window_end TIMESTAMPTZ,
    window_seconds DOUBLE,
    whole_seconds DOUBLE,
    requests BIGINT,
    succeeded BIGINT,
    failed BIGINT,
    cancelled BIGINT,
    input_tokens DOUBLE,
    output_tokens DOUBLE,
    cached_input_tokens DOUBLE,
    tokens_source VARCHAR,
    output_tokens_per_second DOUBLE,
    whole_output_tokens_per_second DOUBLE,
    requests_per_second DOUBLE,
    goodput_requests_per_second DOUBLE,
    goodput_fraction DOUBLE,
    user_tokens_per_second DOUBLE,
    tokens_per_chunk DOUBLE,
    ttft_mean_seconds DOUBLE,
    ttft_p50_seconds DOUBLE,
    ttft_p90_seconds DOUBLE,
    ttft_p95_seconds DOUBLE,
    ttft_p99_seconds DOUBLE,
    tpot_mean_seconds DOUBLE,
    tpot_p50_seconds DOUBLE,
    tpot_p90_seconds DOUBLE,
    tpot_p95_seconds DOUBLE,
    tpot_p99_seconds DOUBLE,
    icl_mean_seconds DOUBLE,
    icl_p50_seconds DOUBLE,
    icl_p90_seconds DOUBLE,
    icl_p95_seconds DOUBLE,
    icl_p99_seconds DOUBLE,
    e2e_mean_seconds DOUBLE,
    e2e_p50_seconds DOUBLE,
    e2e_p90_seconds DOUBLE,
    e2e_p95_seconds DOUBLE,
    e2e_p99_seconds DOUBLE,
    counters VARCHAR,
    details VARCHAR
);
COMMENT ON TABLE loadtest_stage IS 'One load level against one endpoint, once: what was asked, what came out, in its steady window';
COMMENT ON COLUMN loadtest_stage.ts IS 'its beginning, UTC';
COMMENT ON COLUMN loadtest_stage.ended IS 'when it was over, UTC';
COMMENT ON COLUMN loadtest_stage.host IS 'name of the host that the row is from';
COMMENT ON COLUMN loadtest_stage.run_id IS 'load test that the row is about';
COMMENT ON COLUMN loadtest_stage.stage_id IS 'order within the run, from 0';
COMMENT ON COLUMN loadtest_stage.url IS 'base URL of the endpoint, without user, password or query';
COMMENT ON COLUMN loadtest_stage.label IS 'what the endpoint is called in charts';
COMMENT ON COLUMN loadtest_stage.engine IS 'kind of the engine: "vllm", "llama.cpp"; NULL: an endpoint of unknown kind';
COMMENT ON COLUMN loadtest_stage.engine_id IS 'as in `engine`, where a collector knows it';
COMMENT ON COLUMN loadtest_stage.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN loadtest_stage.engine_version IS 'version as the engine tells it';
COMMENT ON COLUMN loadtest_stage.model_id IS 'model name as served';
COMMENT ON COLUMN loadtest_stage.mode IS 'closed | constant | poisson';
COMMENT ON COLUMN loadtest_stage.concurrency IS 'closed loop: requests in flight; open loop: the limit, or None';
COMMENT ON COLUMN loadtest_stage.offered_requests_per_second IS 'open loop: the rate asked for';
COMMENT ON COLUMN loadtest_stage.repeat IS 'from 0';
COMMENT ON COLUMN loadtest_stage.window_begin IS 'steady window: all users busy, warm-up and tail excluded, UTC';
COMMENT ON COLUMN loadtest_stage.window_end IS 'end of the steady window, UTC';
COMMENT ON COLUMN loadtest_stage.window_seconds IS 'seconds: length of the steady window';
COMMENT ON COLUMN loadtest_stage.whole_seconds IS 'first request sent to last one done';
COMMENT ON COLUMN loadtest_stage.requests IS 'sent and measured, warm-up left out';
COMMENT ON COLUMN loadtest_stage.succeeded IS 'requests that succeeded';
COMMENT ON COLUMN loadtest_stage.failed IS 'requests that failed';
COMMENT ON COLUMN loadtest_stage.cancelled IS 'cut off by the end of the stage or a stop; no failure';
COMMENT ON COLUMN loadtest_stage.input_tokens IS 'sum over succeeded requests';
COMMENT ON COLUMN loadtest_stage.output_tokens IS 'tokens';
COMMENT ON COLUMN loadtest_stage.cached_input_tokens IS 'of input_tokens, served from a prefix cache; NULL: not told';
COMMENT ON COLUMN loadtest_stage.tokens_source IS 'usage | timings | tokenize | chunks (a lower bound) | file';
COMMENT ON COLUMN loadtest_stage.output_tokens_per_second IS 'in the steady window';
COMMENT ON COLUMN loadtest_stage.whole_output_tokens_per_second IS 'all output tokens over whole_seconds';
COMMENT ON COLUMN loadtest_stage.requests_per_second IS 'completed in the steady window';
COMMENT ON COLUMN loadtest_stage.goodput_requests_per_second IS 'those that met every stated SLO';
COMMENT ON COLUMN loadtest_stage.goodput_fraction IS '0..1, share of requests that met every stated SLO';
COMMENT ON COLUMN loadtest_stage.user_tokens_per_second IS 'mean over requests of 1 / TPOT: what one user sees';
COMMENT ON COLUMN loadtest_stage.tokens_per_chunk IS 'output tokens over chunks that carried text';
COMMENT ON COLUMN loadtest_stage.ttft_mean_seconds IS 'seconds: mean of TTFT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.ttft_p50_seconds IS 'seconds: p50 of TTFT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.ttft_p90_seconds IS 'seconds: p90 of TTFT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.ttft_p95_seconds IS 'seconds: p95 of TTFT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.ttft_p99_seconds IS 'seconds: p99 of TTFT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.tpot_mean_seconds IS 'seconds: mean of TPOT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.tpot_p50_seconds IS 'seconds: p50 of TPOT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.tpot_p90_seconds IS 'seconds: p90 of TPOT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.tpot_p95_seconds IS 'seconds: p95 of TPOT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.tpot_p99_seconds IS 'seconds: p99 of TPOT over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.icl_mean_seconds IS 'gap between chunks, not tokens';
COMMENT ON COLUMN loadtest_stage.icl_p50_seconds IS 'seconds: p50 of gaps between chunks over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.icl_p90_seconds IS 'seconds: p90 of gaps between chunks over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.icl_p95_seconds IS 'seconds: p95 of gaps between chunks over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.icl_p99_seconds IS 'seconds: p99 of gaps between chunks over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.e2e_mean_seconds IS 'seconds: mean of E2E over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.e2e_p50_seconds IS 'seconds: p50 of E2E over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.e2e_p90_seconds IS 'seconds: p90 of E2E over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.e2e_p95_seconds IS 'seconds: p95 of E2E over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.e2e_p99_seconds IS 'seconds: p99 of E2E over succeeded requests of the steady window';
COMMENT ON COLUMN loadtest_stage.counters IS 'JSON object: the engine''s own counters before and after, and their difference';
COMMENT ON COLUMN loadtest_stage.details IS 'JSON object: further figures (TTFV, time from schedule, fields of an imported file)';

CREATE TABLE loadtest_request (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    stage_id BIGINT NOT NULL,
    request BIGINT NOT NULL,
    status VARCHAR NOT NULL,
    error VARCHAR,
    finish_reason VARCHAR,
    http_status BIGINT,
    in_window BOOLEAN NOT NULL,
    scheduled_seconds DOUBLE,
    sent_seconds DOUBLE,
    headers_seconds DOUBLE,
    first_data_seconds DOUBLE,
    first_token_seconds DOUBLE,
    first_visible_seconds DOUBLE,
    last_token_seconds DOUBLE,
    done_seconds DOUBLE,
    input_tokens BIGINT,
    cached_input_tokens BIGINT,
    output_tokens BIGINT,
    first_chunk_tokens BIGINT,
    chunks BIGINT,
    tokens_source VARCHAR,
    ttft_seconds DOUBLE,
    tpot_seconds DOUBLE,
    e2e_seconds DOUBLE,
    from_schedule_seconds DOUBLE,
    longest_gap_seconds DOUBLE
);
COMMENT ON TABLE loadtest_request IS 'One request. Its prompt and its answer are never stored';
COMMENT ON COLUMN loadtest_request.ts IS 'wall clock when it was sent, UTC';
COMMENT ON COLUMN loadtest_request.host IS 'name of the host that the row is from';
COMMENT ON COLUMN loadtest_request.run_id IS 'load test that the row is about';
COMMENT ON COLUMN loadtest_request.stage_id IS 'stage within the run, from 0';
COMMENT ON COLUMN loadtest_request.request IS 'order within the stage, from 0';
COMMENT ON COLUMN loadtest_request.status IS 'ok | error | cancelled';
COMMENT ON COLUMN loadtest_request.error IS 'what went wrong, in a sentence; no text of the answer';
COMMENT ON COLUMN loadtest_request.finish_reason IS 'as the server told it';
COMMENT ON COLUMN loadtest_request.http_status IS 'status code';
COMMENT ON COLUMN loadtest_request.in_window IS 'whether it was sent and done inside the steady window';
COMMENT ON COLUMN loadtest_request.scheduled_seconds IS 'when it was due; closed loop: when its user was free';
COMMENT ON COLUMN loadtest_request.sent_seconds IS 'seconds from the beginning of the stage';
COMMENT ON COLUMN loadtest_request.headers_seconds IS 'seconds from the beginning of the stage';
COMMENT ON COLUMN loadtest_request.first_data_seconds IS 'seconds from the beginning of the stage';
COMMENT ON COLUMN loadtest_request.first_token_seconds IS 'first non-empty content, reasoning or tool-call delta';
COMMENT ON COLUMN loadtest_request.first_visible_seconds IS 'first non-empty content';
COMMENT ON COLUMN loadtest_request.last_token_seconds IS 'seconds from the beginning of the stage';
COMMENT ON COLUMN loadtest_request.done_seconds IS 'seconds from the beginning of the stage';
COMMENT ON COLUMN loadtest_request.input_tokens IS 'tokens';
COMMENT ON COLUMN loadtest_request.cached_input_tokens IS 'tokens served from a prefix cache';
COMMENT ON COLUMN loadtest_request.output_tokens IS 'tokens';
COMMENT ON COLUMN loadtest_request.first_chunk_tokens IS 'tokens in the first chunk with text, where told';
COMMENT ON COLUMN loadtest_request.chunks IS 'that carried text';
COMMENT ON COLUMN loadtest_request.tokens_source IS 'where the token counts are from';
COMMENT ON COLUMN loadtest_request.ttft_seconds IS 'seconds: time to first token, first_token_seconds - sent_seconds';
COMMENT ON COLUMN loadtest_request.tpot_seconds IS 'seconds per output token after the first chunk';
COMMENT ON COLUMN loadtest_request.e2e_seconds IS 'seconds: last_token_seconds - sent_seconds';
COMMENT ON COLUMN loadtest_request.from_schedule_seconds IS 'scheduled to last token: what a user who came on time waits';
COMMENT ON COLUMN loadtest_request.longest_gap_seconds IS 'seconds: longest gap between two chunks';

CREATE TABLE loadtest_judgement (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    stage_id BIGINT,
    code VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    text VARCHAR NOT NULL
);
COMMENT ON TABLE loadtest_judgement IS 'What a run says against itself, or in its own favour';
COMMENT ON COLUMN loadtest_judgement.ts IS 'UTC';
COMMENT ON COLUMN loadtest_judgement.host IS 'name of the host that the row is from';
COMMENT ON COLUMN loadtest_judgement.run_id IS 'load test that the row is about';
COMMENT ON COLUMN loadtest_judgement.stage_id IS 'NULL: about the run';
COMMENT ON COLUMN loadtest_judgement.code IS 'e.g. client_saturated, output_length, prefix_cache_hits';
COMMENT ON COLUMN loadtest_judgement.severity IS 'ok | note | warning | failed';
COMMENT ON COLUMN loadtest_judgement.text IS 'what it means, in a sentence';

CREATE TABLE loadtest_resource (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    stage_id BIGINT NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR,
    device_id VARCHAR,
    memory_method VARCHAR,
    memory_mean_bytes DOUBLE,
    memory_peak_bytes DOUBLE,
    cpu_cores_mean DOUBLE,
    utilisation_mean_fraction DOUBLE,
    power_mean_watts DOUBLE,
    energy_joules DOUBLE,
    energy_method VARCHAR,
    others_memory_bytes DOUBLE,
    joules_per_output_token DOUBLE,
    joules_per_request DOUBLE,
    samples BIGINT NOT NULL
);
COMMENT ON TABLE loadtest_resource IS 'What one engine and its devices used during one stage, from the samples of the collector';
COMMENT ON COLUMN loadtest_resource.ts IS 'UTC';
COMMENT ON COLUMN loadtest_resource.host IS 'name of the host that the row is from';
COMMENT ON COLUMN loadtest_resource.run_id IS 'load test that the row is about';
COMMENT ON COLUMN loadtest_resource.stage_id IS 'stage within the run, from 0';
COMMENT ON COLUMN loadtest_resource.engine_id IS 'engine that the row is about, as in engine';
COMMENT ON COLUMN loadtest_resource.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN loadtest_resource.device_id IS 'NULL: host memory and CPU of the engine';
COMMENT ON COLUMN loadtest_resource.memory_method IS 'how memory was measured, as in process_memory';
COMMENT ON COLUMN loadtest_resource.memory_mean_bytes IS 'bytes';
COMMENT ON COLUMN loadtest_resource.memory_peak_bytes IS 'bytes';
COMMENT ON COLUMN loadtest_resource.cpu_cores_mean IS 'CPU seconds per second';
COMMENT ON COLUMN loadtest_resource.utilisation_mean_fraction IS '0..1';
COMMENT ON COLUMN loadtest_resource.power_mean_watts IS 'watts';
COMMENT ON COLUMN loadtest_resource.energy_joules IS 'of the whole device over the stage';
COMMENT ON COLUMN loadtest_resource.energy_method IS 'counter | power_integral';
COMMENT ON COLUMN loadtest_resource.others_memory_bytes IS 'held on the device by other processes meanwhile';
COMMENT ON COLUMN loadtest_resource.joules_per_output_token IS 'joules over output tokens of the stage';
COMMENT ON COLUMN loadtest_resource.joules_per_request IS 'joules over succeeded requests of the stage';
COMMENT ON COLUMN loadtest_resource.samples IS 'device or process samples that the figures are made of';

CREATE TABLE report (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    report_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    document VARCHAR NOT NULL
);
COMMENT ON TABLE report IS 'A saved report: a name and what it is made of. Written again when it changes; the row written last holds';
COMMENT ON COLUMN report.ts IS 'UTC';
COMMENT ON COLUMN report.host IS 'name of the host that the row is from';
COMMENT ON COLUMN report.report_id IS 'part of its URL';
COMMENT ON COLUMN report.name IS 'what a person calls it';
COMMENT ON COLUMN report.document IS 'JSON object: windows, runs, sections, scrubbing';
