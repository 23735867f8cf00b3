-- Rollups: one row a minute and one an hour. Rates gain bounds of what is read around a range, for the rollups.
-- Names say how rows are merged: _count, _sum, _increase and _seconds are added, _min and _max are the least and the
-- greatest, everything else is that of the row with the newest last_ts. So a mean is sum(x_sum) / sum(x_count) and a
-- rate sum(x_increase) / sum(x_window_seconds) over any rows; two rows of one minute may exist and count both.

-- As in 0002_rates.sql, but samples from `since` (60 s before the range unless given) up to `until` (its end unless
-- given) are read: a sample's predecessor lies at a later time when the clock was set back.
CREATE OR REPLACE MACRO counter_increase_between(t0, t1, since := NULL, until := NULL) AS TABLE
WITH sample AS (
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prompt_tokens' AS quantity, prompt_tokens_total AS counter
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND prompt_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'settled_generation_tokens' AS quantity, generation_tokens_total AS counter
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND generation_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prompt_with_cached_tokens', prompt_with_cached_tokens_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND prompt_with_cached_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prefix_cache_query_tokens', prefix_cache_query_tokens_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND prefix_cache_query_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        'prefix_cache_hit_tokens', prefix_cache_hit_tokens_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND prefix_cache_hit_tokens_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'requests_finished', requests_finished_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND requests_finished_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'preemptions', preemptions_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND preemptions_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'generation_seconds', generation_seconds_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND generation_seconds_total IS NOT NULL
    UNION ALL
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id, 'prompt_seconds', prompt_seconds_total
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1) AND prompt_seconds_total IS NOT NULL
),
pair AS (
    SELECT *,
        monotonic_seconds - lag(monotonic_seconds) OVER earlier AS window_seconds,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS clock_seconds,
        counter - lag(counter) OVER earlier AS change
    FROM sample
    WINDOW earlier AS (PARTITION BY quantity, engine_id, epoch_id ORDER BY monotonic_seconds)
)
SELECT ts, host, engine_id, epoch_id, quantity,
    CASE WHEN change >= 0 THEN change END AS increase,
    window_seconds
FROM pair
WHERE ts >= t0 AND ts <= t1
    AND window_seconds IS NOT NULL
    AND (window_seconds <= 60 OR abs(clock_seconds - window_seconds) <= 60);

CREATE OR REPLACE MACRO generation_increase_between(t0, t1, since := NULL, until := NULL) AS TABLE
WITH sample AS (
    SELECT ts, monotonic_seconds, host, engine_id, epoch_id,
        generation_tokens_total AS settled,
        generation_live_tokens_total AS live,
        coalesce(requests_running = 0, false) AS idle,
        requests_running
    FROM engine_sample
    WHERE ts >= coalesce(since, t0 - INTERVAL 60 SECOND) AND ts <= coalesce(until, t1)
        AND (generation_tokens_total IS NOT NULL OR generation_live_tokens_total IS NOT NULL)
),
neighbour AS (
    SELECT *,
        coalesce(settled < lag(settled) OVER earlier, false)
            OR coalesce(live < lag(live) OVER earlier * (1 - 2e-5), false) AS restarted
    FROM sample
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds)
),
life AS (
    SELECT *, count_if(restarted) OVER (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds) AS life
    FROM neighbour
),
steady AS (
    SELECT * REPLACE (CASE WHEN live IS NOT NULL THEN max(live) OVER earlier END AS live)
    FROM life
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id, life ORDER BY monotonic_seconds)
),
pair AS (
    SELECT *,
        monotonic_seconds - lag(monotonic_seconds) OVER earlier AS window_seconds,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS clock_seconds,
        lag(settled) OVER earlier AS settled_before,
        lag(live) OVER earlier AS live_before,
        lag(idle) OVER earlier AS idle_before,
        lag(requests_running) OVER earlier AS running_before
    FROM steady
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id ORDER BY monotonic_seconds)
),
stretch AS (
    SELECT *,
        last_value(
            CASE WHEN idle AND settled IS NOT NULL AND live IS NOT NULL THEN settled - live END IGNORE NULLS
        ) OVER (
            PARTITION BY engine_id, epoch_id, life ORDER BY monotonic_seconds
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS idle_difference
    FROM pair
),
judged AS (
    SELECT *,
        CASE
            WHEN live IS NULL OR live_before IS NULL THEN 'settled'
            WHEN idle AND idle_before AND settled IS NOT NULL AND settled_before IS NOT NULL THEN 'settled'
            WHEN idle AND settled IS NOT NULL AND idle_difference IS NOT NULL THEN 'reconciled'
            ELSE 'live'
        END AS source
    FROM stretch
)
SELECT ts, host, engine_id, epoch_id,
    CASE
        WHEN restarted THEN NULL
        WHEN source = 'settled' THEN settled - settled_before
        WHEN source = 'reconciled' THEN greatest(0, settled - live_before - idle_difference)
        ELSE live - live_before
    END AS increase,
    window_seconds,
    source,
    coalesce(greatest(requests_running, running_before) > 0, false) AS working
FROM judged
WHERE ts >= t0 AND ts <= t1
    AND window_seconds IS NOT NULL
    AND (window_seconds <= 60 OR abs(clock_seconds - window_seconds) <= 60);

CREATE OR REPLACE MACRO engine_rate_between(t0, t1, since := NULL, until := NULL) AS TABLE
SELECT ts, host, engine_id, epoch_id, 'generation_tokens' AS quantity, increase, window_seconds,
    increase / nullif(window_seconds, 0) AS per_second, source, working
FROM generation_increase_between(t0, t1, since := since, until := until)
UNION ALL
SELECT ts, host, engine_id, epoch_id, quantity, increase, window_seconds,
    increase / nullif(window_seconds, 0) AS per_second, 'settled' AS source, NULL AS working
FROM counter_increase_between(t0, t1, since := since, until := until);

-- Beginning of the bucket of that many seconds, aligned to the clock, that a time lies in.
CREATE MACRO bucket_start(sample_ts, width_seconds) AS
    make_timestamptz(epoch_us(sample_ts) // (width_seconds::BIGINT * 1000000) * (width_seconds::BIGINT * 1000000));

CREATE TABLE engine_minute (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    first_ts TIMESTAMPTZ NOT NULL,
    last_ts TIMESTAMPTZ NOT NULL,
    samples BIGINT NOT NULL,
    state VARCHAR NOT NULL,
    ready_samples BIGINT NOT NULL,
    requests_running_count BIGINT NOT NULL,
    requests_running_sum DOUBLE,
    requests_running_min DOUBLE,
    requests_running_max DOUBLE,
    requests_running_last DOUBLE,
    requests_waiting_count BIGINT NOT NULL,
    requests_waiting_sum DOUBLE,
    requests_waiting_min DOUBLE,
    requests_waiting_max DOUBLE,
    requests_waiting_last DOUBLE,
    kv_used_fraction_count BIGINT NOT NULL,
    kv_used_fraction_sum DOUBLE,
    kv_used_fraction_min DOUBLE,
    kv_used_fraction_max DOUBLE,
    kv_used_fraction_last DOUBLE,
    kv_capacity_tokens_count BIGINT NOT NULL,
    kv_capacity_tokens_sum DOUBLE,
    kv_capacity_tokens_min DOUBLE,
    kv_capacity_tokens_max DOUBLE,
    kv_capacity_tokens_last DOUBLE,
    generation_tokens_increase DOUBLE,
    generation_tokens_window_seconds DOUBLE,
    generation_tokens_per_second_min DOUBLE,
    generation_tokens_per_second_max DOUBLE,
    settled_generation_tokens_increase DOUBLE,
    prompt_tokens_increase DOUBLE,
    prompt_tokens_window_seconds DOUBLE,
    prompt_tokens_per_second_min DOUBLE,
    prompt_tokens_per_second_max DOUBLE,
    prompt_with_cached_tokens_increase DOUBLE,
    prefix_cache_query_tokens_increase DOUBLE,
    prefix_cache_hit_tokens_increase DOUBLE,
    requests_finished_increase DOUBLE,
    requests_finished_window_seconds DOUBLE,
    requests_finished_per_second_min DOUBLE,
    requests_finished_per_second_max DOUBLE,
    preemptions_increase DOUBLE,
    generation_seconds_increase DOUBLE,
    prompt_seconds_increase DOUBLE,
    generation_live BOOLEAN,
    generation_tokens_working_increase DOUBLE,
    generation_tokens_working_seconds DOUBLE
);
COMMENT ON TABLE engine_minute IS 'counters and gauges of one life of an engine; by the minute';
COMMENT ON COLUMN engine_minute.ts IS 'beginning of the minute or hour, UTC';
COMMENT ON COLUMN engine_minute.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN engine_minute.engine_id IS 'engine that the row is about';
COMMENT ON COLUMN engine_minute.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN engine_minute.first_ts IS 'time of the first sample in it';
COMMENT ON COLUMN engine_minute.last_ts IS 'time of the last sample in it';
COMMENT ON COLUMN engine_minute.samples IS 'samples in it';
COMMENT ON COLUMN engine_minute.state IS 'state of the last sample';
COMMENT ON COLUMN engine_minute.ready_samples IS 'samples whose state is ready';
COMMENT ON COLUMN engine_minute.requests_running_count IS 'samples that have requests_running';
COMMENT ON COLUMN engine_minute.requests_running_sum IS 'sum over them (requests); mean is _sum / _count';
COMMENT ON COLUMN engine_minute.requests_running_min IS 'requests';
COMMENT ON COLUMN engine_minute.requests_running_max IS 'requests';
COMMENT ON COLUMN engine_minute.requests_running_last IS 'requests; that of the last sample which has it';
COMMENT ON COLUMN engine_minute.requests_waiting_count IS 'samples that have requests_waiting';
COMMENT ON COLUMN engine_minute.requests_waiting_sum IS 'sum over them (requests); mean is _sum / _count';
COMMENT ON COLUMN engine_minute.requests_waiting_min IS 'requests';
COMMENT ON COLUMN engine_minute.requests_waiting_max IS 'requests';
COMMENT ON COLUMN engine_minute.requests_waiting_last IS 'requests; that of the last sample which has it';
COMMENT ON COLUMN engine_minute.kv_used_fraction_count IS 'samples that have kv_used_fraction';
COMMENT ON COLUMN engine_minute.kv_used_fraction_sum IS 'sum over them (0..1); mean is _sum / _count';
COMMENT ON COLUMN engine_minute.kv_used_fraction_min IS '0..1';
COMMENT ON COLUMN engine_minute.kv_used_fraction_max IS '0..1';
COMMENT ON COLUMN engine_minute.kv_used_fraction_last IS '0..1; that of the last sample which has it';
COMMENT ON COLUMN engine_minute.kv_capacity_tokens_count IS 'samples that have kv_capacity_tokens';
COMMENT ON COLUMN engine_minute.kv_capacity_tokens_sum IS 'sum over them (tokens); mean is _sum / _count';
COMMENT ON COLUMN engine_minute.kv_capacity_tokens_min IS 'tokens';
COMMENT ON COLUMN engine_minute.kv_capacity_tokens_max IS 'tokens';
COMMENT ON COLUMN engine_minute.kv_capacity_tokens_last IS 'tokens; that of the last sample which has it';
COMMENT ON COLUMN engine_minute.generation_tokens_increase IS 'generated tokens, live where the engine tells them so: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.generation_tokens_window_seconds IS 'elapsed seconds of these increases';
COMMENT ON COLUMN engine_minute.generation_tokens_per_second_min IS 'least rate between two samples';
COMMENT ON COLUMN engine_minute.generation_tokens_per_second_max IS 'greatest rate between two samples';
COMMENT ON COLUMN engine_minute.settled_generation_tokens_increase IS 'generated tokens as the engine counts them: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.prompt_tokens_increase IS 'prompt tokens computed: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.prompt_tokens_window_seconds IS 'elapsed seconds of these increases';
COMMENT ON COLUMN engine_minute.prompt_tokens_per_second_min IS 'least rate between two samples';
COMMENT ON COLUMN engine_minute.prompt_tokens_per_second_max IS 'greatest rate between two samples';
COMMENT ON COLUMN engine_minute.prompt_with_cached_tokens_increase IS 'prompt tokens received: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.prefix_cache_query_tokens_increase IS 'tokens looked up in the prefix cache: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.prefix_cache_hit_tokens_increase IS 'tokens served from the prefix cache: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.requests_finished_increase IS 'requests that ended: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.requests_finished_window_seconds IS 'elapsed seconds of these increases';
COMMENT ON COLUMN engine_minute.requests_finished_per_second_min IS 'least rate between two samples';
COMMENT ON COLUMN engine_minute.requests_finished_per_second_max IS 'greatest rate between two samples';
COMMENT ON COLUMN engine_minute.preemptions_increase IS 'preemptions: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.generation_seconds_increase IS 'seconds of generation, over parallel requests: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.prompt_seconds_increase IS 'seconds on prompts: sum of the increases within an epoch';
COMMENT ON COLUMN engine_minute.generation_live IS 'whether an increase of generation_tokens came from a live counter';
COMMENT ON COLUMN engine_minute.generation_tokens_working_increase IS 'of generation_tokens_increase, what came while requests were known to run';
COMMENT ON COLUMN engine_minute.generation_tokens_working_seconds IS 'elapsed seconds of that';
CREATE TABLE engine_hour AS FROM engine_minute;
COMMENT ON TABLE engine_hour IS 'counters and gauges of one life of an engine; by the hour, columns as in engine_minute';

CREATE TABLE latency_minute (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    engine_id VARCHAR NOT NULL,
    epoch_id VARCHAR NOT NULL,
    first_ts TIMESTAMPTZ NOT NULL,
    last_ts TIMESTAMPTZ NOT NULL,
    quantity VARCHAR NOT NULL,
    bounds VARCHAR NOT NULL,
    observations_increase BIGINT[] NOT NULL,
    seconds_increase DOUBLE
);
COMMENT ON TABLE latency_minute IS 'increases of one histogram within one epoch. Rows add where their bounds agree; by the minute';
COMMENT ON COLUMN latency_minute.ts IS 'beginning of the minute or hour, UTC';
COMMENT ON COLUMN latency_minute.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN latency_minute.engine_id IS 'engine that the row is about';
COMMENT ON COLUMN latency_minute.epoch_id IS 'one life of the engine''s process';
COMMENT ON COLUMN latency_minute.first_ts IS 'time of the first snapshot in it';
COMMENT ON COLUMN latency_minute.last_ts IS 'time of the last snapshot in it';
COMMENT ON COLUMN latency_minute.quantity IS 'canonical quantity';
COMMENT ON COLUMN latency_minute.bounds IS 'upper bounds of the buckets in seconds, inclusive, infinity last: bounds::DOUBLE[]';
COMMENT ON COLUMN latency_minute.observations_increase IS 'observations at or below each bound';
COMMENT ON COLUMN latency_minute.seconds_increase IS 'sum of all observations in seconds';
CREATE TABLE latency_hour AS FROM latency_minute;
COMMENT ON TABLE latency_hour IS 'increases of one histogram within one epoch. Rows add where their bounds agree; by the hour, columns as in latency_minute';

CREATE TABLE device_minute (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    device_id VARCHAR NOT NULL,
    first_ts TIMESTAMPTZ NOT NULL,
    last_ts TIMESTAMPTZ NOT NULL,
    samples BIGINT NOT NULL,
    state VARCHAR NOT NULL,
    memory_total_bytes BIGINT,
    power_limit_watts DOUBLE,
    memory_used_bytes_count BIGINT NOT NULL,
    memory_used_bytes_sum BIGINT,
    memory_used_bytes_min BIGINT,
    memory_used_bytes_max BIGINT,
    memory_used_bytes_last BIGINT,
    memory_reserved_bytes_count BIGINT NOT NULL,
    memory_reserved_bytes_sum BIGINT,
    memory_reserved_bytes_min BIGINT,
    memory_reserved_bytes_max BIGINT,
    memory_reserved_bytes_last BIGINT,
    utilisation_fraction_count BIGINT NOT NULL,
    utilisation_fraction_sum DOUBLE,
    utilisation_fraction_min DOUBLE,
    utilisation_fraction_max DOUBLE,
    utilisation_fraction_last DOUBLE,
    memory_utilisation_fraction_count BIGINT NOT NULL,
    memory_utilisation_fraction_sum DOUBLE,
    memory_utilisation_fraction_min DOUBLE,
    memory_utilisation_fraction_max DOUBLE,
    memory_utilisation_fraction_last DOUBLE,
    power_watts_count BIGINT NOT NULL,
    power_watts_sum DOUBLE,
    power_watts_min DOUBLE,
    power_watts_max DOUBLE,
    power_watts_last DOUBLE,
    temperature_celsius_count BIGINT NOT NULL,
    temperature_celsius_sum DOUBLE,
    temperature_celsius_min DOUBLE,
    temperature_celsius_max DOUBLE,
    temperature_celsius_last DOUBLE,
    sm_clock_hertz_count BIGINT NOT NULL,
    sm_clock_hertz_sum DOUBLE,
    sm_clock_hertz_min DOUBLE,
    sm_clock_hertz_max DOUBLE,
    sm_clock_hertz_last DOUBLE,
    memory_clock_hertz_count BIGINT NOT NULL,
    memory_clock_hertz_sum DOUBLE,
    memory_clock_hertz_min DOUBLE,
    memory_clock_hertz_max DOUBLE,
    memory_clock_hertz_last DOUBLE,
    energy_joules_increase DOUBLE,
    process_lists_count BIGINT NOT NULL,
    process_lists_aligned BOOLEAN NOT NULL
);
COMMENT ON TABLE device_minute IS 'what one device did; by the minute';
COMMENT ON COLUMN device_minute.ts IS 'beginning of the minute or hour, UTC';
COMMENT ON COLUMN device_minute.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN device_minute.device_id IS 'the driver''s own unique name of the device';
COMMENT ON COLUMN device_minute.first_ts IS 'time of the first sample in it';
COMMENT ON COLUMN device_minute.last_ts IS 'time of the last sample in it';
COMMENT ON COLUMN device_minute.samples IS 'samples in it';
COMMENT ON COLUMN device_minute.state IS 'state of the last sample';
COMMENT ON COLUMN device_minute.memory_total_bytes IS 'bytes, of the last sample that has it';
COMMENT ON COLUMN device_minute.power_limit_watts IS 'watts, of the last sample that has it';
COMMENT ON COLUMN device_minute.memory_used_bytes_count IS 'samples that have memory_used_bytes';
COMMENT ON COLUMN device_minute.memory_used_bytes_sum IS 'sum over them (bytes); mean is _sum / _count';
COMMENT ON COLUMN device_minute.memory_used_bytes_min IS 'bytes';
COMMENT ON COLUMN device_minute.memory_used_bytes_max IS 'bytes';
COMMENT ON COLUMN device_minute.memory_used_bytes_last IS 'bytes; that of the last sample which has it';
COMMENT ON COLUMN device_minute.memory_reserved_bytes_count IS 'samples that have memory_reserved_bytes';
COMMENT ON COLUMN device_minute.memory_reserved_bytes_sum IS 'sum over them (bytes); mean is _sum / _count';
COMMENT ON COLUMN device_minute.memory_reserved_bytes_min IS 'bytes';
COMMENT ON COLUMN device_minute.memory_reserved_bytes_max IS 'bytes';
COMMENT ON COLUMN device_minute.memory_reserved_bytes_last IS 'bytes; that of the last sample which has it';
COMMENT ON COLUMN device_minute.utilisation_fraction_count IS 'samples that have utilisation_fraction';
COMMENT ON COLUMN device_minute.utilisation_fraction_sum IS 'sum over them (0..1); mean is _sum / _count';
COMMENT ON COLUMN device_minute.utilisation_fraction_min IS '0..1';
COMMENT ON COLUMN device_minute.utilisation_fraction_max IS '0..1';
COMMENT ON COLUMN device_minute.utilisation_fraction_last IS '0..1; that of the last sample which has it';
COMMENT ON COLUMN device_minute.memory_utilisation_fraction_count IS 'samples that have memory_utilisation_fraction';
COMMENT ON COLUMN device_minute.memory_utilisation_fraction_sum IS 'sum over them (0..1); mean is _sum / _count';
COMMENT ON COLUMN device_minute.memory_utilisation_fraction_min IS '0..1';
COMMENT ON COLUMN device_minute.memory_utilisation_fraction_max IS '0..1';
COMMENT ON COLUMN device_minute.memory_utilisation_fraction_last IS '0..1; that of the last sample which has it';
COMMENT ON COLUMN device_minute.power_watts_count IS 'samples that have power_watts';
COMMENT ON COLUMN device_minute.power_watts_sum IS 'sum over them (watts); mean is _sum / _count';
COMMENT ON COLUMN device_minute.power_watts_min IS 'watts';
COMMENT ON COLUMN device_minute.power_watts_max IS 'watts';
COMMENT ON COLUMN device_minute.power_watts_last IS 'watts; that of the last sample which has it';
COMMENT ON COLUMN device_minute.temperature_celsius_count IS 'samples that have temperature_celsius';
COMMENT ON COLUMN device_minute.temperature_celsius_sum IS 'sum over them (degrees Celsius); mean is _sum / _count';
COMMENT ON COLUMN device_minute.temperature_celsius_min IS 'degrees Celsius';
COMMENT ON COLUMN device_minute.temperature_celsius_max IS 'degrees Celsius';
COMMENT ON COLUMN device_minute.temperature_celsius_last IS 'degrees Celsius; that of the last sample which has it';
COMMENT ON COLUMN device_minute.sm_clock_hertz_count IS 'samples that have sm_clock_hertz';
COMMENT ON COLUMN device_minute.sm_clock_hertz_sum IS 'sum over them (hertz); mean is _sum / _count';
COMMENT ON COLUMN device_minute.sm_clock_hertz_min IS 'hertz';
COMMENT ON COLUMN device_minute.sm_clock_hertz_max IS 'hertz';
COMMENT ON COLUMN device_minute.sm_clock_hertz_last IS 'hertz; that of the last sample which has it';
COMMENT ON COLUMN device_minute.memory_clock_hertz_count IS 'samples that have memory_clock_hertz';
COMMENT ON COLUMN device_minute.memory_clock_hertz_sum IS 'sum over them (hertz); mean is _sum / _count';
COMMENT ON COLUMN device_minute.memory_clock_hertz_min IS 'hertz';
COMMENT ON COLUMN device_minute.memory_clock_hertz_max IS 'hertz';
COMMENT ON COLUMN device_minute.memory_clock_hertz_last IS 'hertz; that of the last sample which has it';
COMMENT ON COLUMN device_minute.energy_joules_increase IS 'joules: sum of the increases of the driver''s counter';
COMMENT ON COLUMN device_minute.process_lists_count IS 'times at which processes on the device were seen';
COMMENT ON COLUMN device_minute.process_lists_aligned IS 'whether they were read together with the samples';
CREATE TABLE device_hour AS FROM device_minute;
COMMENT ON TABLE device_hour IS 'what one device did; by the hour, columns as in device_minute';

CREATE TABLE host_minute (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    first_ts TIMESTAMPTZ NOT NULL,
    last_ts TIMESTAMPTZ NOT NULL,
    samples BIGINT NOT NULL,
    cpu_count BIGINT,
    memory_total_bytes BIGINT,
    swap_total_bytes BIGINT,
    cpu_fraction_count BIGINT NOT NULL,
    cpu_fraction_sum DOUBLE,
    cpu_fraction_min DOUBLE,
    cpu_fraction_max DOUBLE,
    cpu_fraction_last DOUBLE,
    load_1m_count BIGINT NOT NULL,
    load_1m_sum DOUBLE,
    load_1m_min DOUBLE,
    load_1m_max DOUBLE,
    load_1m_last DOUBLE,
    memory_available_bytes_count BIGINT NOT NULL,
    memory_available_bytes_sum BIGINT,
    memory_available_bytes_min BIGINT,
    memory_available_bytes_max BIGINT,
    memory_available_bytes_last BIGINT,
    memory_unavailable_bytes_count BIGINT NOT NULL,
    memory_unavailable_bytes_sum BIGINT,
    memory_unavailable_bytes_min BIGINT,
    memory_unavailable_bytes_max BIGINT,
    memory_unavailable_bytes_last BIGINT,
    memory_used_bytes_count BIGINT NOT NULL,
    memory_used_bytes_sum BIGINT,
    memory_used_bytes_min BIGINT,
    memory_used_bytes_max BIGINT,
    memory_used_bytes_last BIGINT,
    swap_used_bytes_count BIGINT NOT NULL,
    swap_used_bytes_sum BIGINT,
    swap_used_bytes_min BIGINT,
    swap_used_bytes_max BIGINT,
    swap_used_bytes_last BIGINT,
    process_lists_count BIGINT NOT NULL
);
COMMENT ON TABLE host_minute IS 'what the host did; by the minute';
COMMENT ON COLUMN host_minute.ts IS 'beginning of the minute or hour, UTC';
COMMENT ON COLUMN host_minute.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN host_minute.first_ts IS 'time of the first sample in it';
COMMENT ON COLUMN host_minute.last_ts IS 'time of the last sample in it';
COMMENT ON COLUMN host_minute.samples IS 'samples in it';
COMMENT ON COLUMN host_minute.cpu_count IS 'logical cores';
COMMENT ON COLUMN host_minute.memory_total_bytes IS 'bytes, of the last sample that has it';
COMMENT ON COLUMN host_minute.swap_total_bytes IS 'bytes, of the last sample that has it';
COMMENT ON COLUMN host_minute.cpu_fraction_count IS 'samples that have cpu_fraction';
COMMENT ON COLUMN host_minute.cpu_fraction_sum IS 'sum over them (0..1); mean is _sum / _count';
COMMENT ON COLUMN host_minute.cpu_fraction_min IS '0..1';
COMMENT ON COLUMN host_minute.cpu_fraction_max IS '0..1';
COMMENT ON COLUMN host_minute.cpu_fraction_last IS '0..1; that of the last sample which has it';
COMMENT ON COLUMN host_minute.load_1m_count IS 'samples that have load_1m';
COMMENT ON COLUMN host_minute.load_1m_sum IS 'sum over them (processes); mean is _sum / _count';
COMMENT ON COLUMN host_minute.load_1m_min IS 'processes';
COMMENT ON COLUMN host_minute.load_1m_max IS 'processes';
COMMENT ON COLUMN host_minute.load_1m_last IS 'processes; that of the last sample which has it';
COMMENT ON COLUMN host_minute.memory_available_bytes_count IS 'samples that have memory_available_bytes';
COMMENT ON COLUMN host_minute.memory_available_bytes_sum IS 'sum over them (bytes); mean is _sum / _count';
COMMENT ON COLUMN host_minute.memory_available_bytes_min IS 'bytes';
COMMENT ON COLUMN host_minute.memory_available_bytes_max IS 'bytes';
COMMENT ON COLUMN host_minute.memory_available_bytes_last IS 'bytes; that of the last sample which has it';
COMMENT ON COLUMN host_minute.memory_unavailable_bytes_count IS 'samples that have memory_unavailable_bytes';
COMMENT ON COLUMN host_minute.memory_unavailable_bytes_sum IS 'sum over them (bytes: installed less available); mean is _sum / _count';
COMMENT ON COLUMN host_minute.memory_unavailable_bytes_min IS 'bytes: installed less available';
COMMENT ON COLUMN host_minute.memory_unavailable_bytes_max IS 'bytes: installed less available';
COMMENT ON COLUMN host_minute.memory_unavailable_bytes_last IS 'bytes: installed less available; that of the last sample which has it';
COMMENT ON COLUMN host_minute.memory_used_bytes_count IS 'samples that have memory_used_bytes';
COMMENT ON COLUMN host_minute.memory_used_bytes_sum IS 'sum over them (bytes); mean is _sum / _count';
COMMENT ON COLUMN host_minute.memory_used_bytes_min IS 'bytes';
COMMENT ON COLUMN host_minute.memory_used_bytes_max IS 'bytes';
COMMENT ON COLUMN host_minute.memory_used_bytes_last IS 'bytes; that of the last sample which has it';
COMMENT ON COLUMN host_minute.swap_used_bytes_count IS 'samples that have swap_used_bytes';
COMMENT ON COLUMN host_minute.swap_used_bytes_sum IS 'sum over them (bytes); mean is _sum / _count';
COMMENT ON COLUMN host_minute.swap_used_bytes_min IS 'bytes';
COMMENT ON COLUMN host_minute.swap_used_bytes_max IS 'bytes';
COMMENT ON COLUMN host_minute.swap_used_bytes_last IS 'bytes; that of the last sample which has it';
COMMENT ON COLUMN host_minute.process_lists_count IS 'times at which the process trees of engines were seen';
CREATE TABLE host_hour AS FROM host_minute;
COMMENT ON TABLE host_hour IS 'what the host did; by the hour, columns as in host_minute';

CREATE TABLE process_memory_minute (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    device_id VARCHAR,
    engine_id VARCHAR,
    first_ts TIMESTAMPTZ NOT NULL,
    last_ts TIMESTAMPTZ NOT NULL,
    samples BIGINT NOT NULL,
    method VARCHAR NOT NULL,
    memory_bytes_count BIGINT NOT NULL,
    memory_bytes_sum BIGINT,
    memory_bytes_min BIGINT,
    memory_bytes_max BIGINT,
    memory_bytes_last BIGINT,
    cpu_cores_count BIGINT NOT NULL,
    cpu_cores_sum DOUBLE,
    cpu_cores_min DOUBLE,
    cpu_cores_max DOUBLE,
    cpu_cores_last DOUBLE,
    process_count_count BIGINT NOT NULL,
    process_count_sum BIGINT,
    process_count_min BIGINT,
    process_count_max BIGINT,
    process_count_last BIGINT
);
COMMENT ON TABLE process_memory_minute IS 'memory held by an engine, or by all other processes of a device together; by the minute';
COMMENT ON COLUMN process_memory_minute.ts IS 'beginning of the minute or hour, UTC';
COMMENT ON COLUMN process_memory_minute.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN process_memory_minute.device_id IS 'device that the memory is on; NULL: host memory';
COMMENT ON COLUMN process_memory_minute.engine_id IS 'engine that holds the memory; NULL: no engine that is known';
COMMENT ON COLUMN process_memory_minute.first_ts IS 'time of the first sample in it';
COMMENT ON COLUMN process_memory_minute.last_ts IS 'time of the last sample in it';
COMMENT ON COLUMN process_memory_minute.samples IS 'samples in it';
COMMENT ON COLUMN process_memory_minute.method IS 'how it was measured; more than one joined with +';
COMMENT ON COLUMN process_memory_minute.memory_bytes_count IS 'samples that have memory_bytes';
COMMENT ON COLUMN process_memory_minute.memory_bytes_sum IS 'sum over them (bytes); mean is _sum / _count';
COMMENT ON COLUMN process_memory_minute.memory_bytes_min IS 'bytes';
COMMENT ON COLUMN process_memory_minute.memory_bytes_max IS 'bytes';
COMMENT ON COLUMN process_memory_minute.memory_bytes_last IS 'bytes; that of the last sample which has it';
COMMENT ON COLUMN process_memory_minute.cpu_cores_count IS 'samples that have cpu_cores';
COMMENT ON COLUMN process_memory_minute.cpu_cores_sum IS 'sum over them (CPU seconds per second); mean is _sum / _count';
COMMENT ON COLUMN process_memory_minute.cpu_cores_min IS 'CPU seconds per second';
COMMENT ON COLUMN process_memory_minute.cpu_cores_max IS 'CPU seconds per second';
COMMENT ON COLUMN process_memory_minute.cpu_cores_last IS 'CPU seconds per second; that of the last sample which has it';
COMMENT ON COLUMN process_memory_minute.process_count_count IS 'samples that have process_count';
COMMENT ON COLUMN process_memory_minute.process_count_sum IS 'sum over them (processes); mean is _sum / _count';
COMMENT ON COLUMN process_memory_minute.process_count_min IS 'processes';
COMMENT ON COLUMN process_memory_minute.process_count_max IS 'processes';
COMMENT ON COLUMN process_memory_minute.process_count_last IS 'processes; that of the last sample which has it';
CREATE TABLE process_memory_hour AS FROM process_memory_minute;
COMMENT ON TABLE process_memory_hour IS 'memory held by an engine, or by all other processes of a device together; by the hour, columns as in process_memory_minute';

CREATE TABLE rollup_state (
    minute_until TIMESTAMPTZ NOT NULL,
    hour_until TIMESTAMPTZ NOT NULL,
    raw_from TIMESTAMPTZ,
    histogram_from TIMESTAMPTZ,
    minute_from TIMESTAMPTZ
);
COMMENT ON TABLE rollup_state IS 'how far rollups and retention are; one row';
COMMENT ON COLUMN rollup_state.minute_until IS 'all samples before this time are in the rollups by the minute';
COMMENT ON COLUMN rollup_state.hour_until IS 'all samples before this time are in the rollups by the hour';
COMMENT ON COLUMN rollup_state.raw_from IS 'samples before this time have been deleted; NULL: none was';
COMMENT ON COLUMN rollup_state.histogram_from IS 'snapshots of histograms before this time have been deleted; NULL: none was';
COMMENT ON COLUMN rollup_state.minute_from IS 'rollups by the minute before this time have been deleted; NULL: none was';
INSERT INTO rollup_state VALUES ('-infinity', '-infinity', NULL, NULL, NULL);

CREATE TABLE rollup_late (
    ts TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE rollup_late IS 'minutes that got samples after they had been rolled up; they are rolled up again';
COMMENT ON COLUMN rollup_late.ts IS 'beginning of the minute, UTC';

-- Samples in [t0, t1) as rollup rows of that width. Pairs are looked for in samples from `since` up to `until`.
CREATE MACRO engine_rollup(t0, t1, width_seconds, since, until) AS TABLE
WITH gauge AS (
    SELECT bucket_start(ts, width_seconds) AS bucket_ts, host, engine_id, epoch_id,
        min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS samples,
        arg_max(state, ts) AS state, count(*) FILTER (state = 'ready') AS ready_samples,
        count(requests_running) AS requests_running_count, sum(requests_running) AS requests_running_sum, min(requests_running) AS requests_running_min, max(requests_running) AS requests_running_max,
        arg_max(requests_running, ts) AS requests_running_last,
        count(requests_waiting) AS requests_waiting_count, sum(requests_waiting) AS requests_waiting_sum, min(requests_waiting) AS requests_waiting_min, max(requests_waiting) AS requests_waiting_max,
        arg_max(requests_waiting, ts) AS requests_waiting_last,
        count(kv_used_fraction) AS kv_used_fraction_count, sum(kv_used_fraction) AS kv_used_fraction_sum, min(kv_used_fraction) AS kv_used_fraction_min, max(kv_used_fraction) AS kv_used_fraction_max,
        arg_max(kv_used_fraction, ts) AS kv_used_fraction_last,
        count(kv_capacity_tokens) AS kv_capacity_tokens_count, sum(kv_capacity_tokens) AS kv_capacity_tokens_sum, min(kv_capacity_tokens) AS kv_capacity_tokens_min, max(kv_capacity_tokens) AS kv_capacity_tokens_max,
        arg_max(kv_capacity_tokens, ts) AS kv_capacity_tokens_last
    FROM engine_sample
    WHERE ts >= t0 AND ts < t1
    GROUP BY bucket_ts, host, engine_id, epoch_id
),
rate AS (
    SELECT bucket_start(ts, width_seconds) AS bucket_ts, host, engine_id, epoch_id,
        sum(increase) FILTER (quantity = 'generation_tokens') AS generation_tokens_increase,
        sum(window_seconds) FILTER (quantity = 'generation_tokens') AS generation_tokens_window_seconds,
        min(per_second) FILTER (quantity = 'generation_tokens') AS generation_tokens_per_second_min,
        max(per_second) FILTER (quantity = 'generation_tokens') AS generation_tokens_per_second_max,
        sum(increase) FILTER (quantity = 'settled_generation_tokens') AS settled_generation_tokens_increase,
        sum(increase) FILTER (quantity = 'prompt_tokens') AS prompt_tokens_increase,
        sum(window_seconds) FILTER (quantity = 'prompt_tokens') AS prompt_tokens_window_seconds,
        min(per_second) FILTER (quantity = 'prompt_tokens') AS prompt_tokens_per_second_min,
        max(per_second) FILTER (quantity = 'prompt_tokens') AS prompt_tokens_per_second_max,
        sum(increase) FILTER (quantity = 'prompt_with_cached_tokens') AS prompt_with_cached_tokens_increase,
        sum(increase) FILTER (quantity = 'prefix_cache_query_tokens') AS prefix_cache_query_tokens_increase,
        sum(increase) FILTER (quantity = 'prefix_cache_hit_tokens') AS prefix_cache_hit_tokens_increase,
        sum(increase) FILTER (quantity = 'requests_finished') AS requests_finished_increase,
        sum(window_seconds) FILTER (quantity = 'requests_finished') AS requests_finished_window_seconds,
        min(per_second) FILTER (quantity = 'requests_finished') AS requests_finished_per_second_min,
        max(per_second) FILTER (quantity = 'requests_finished') AS requests_finished_per_second_max,
        sum(increase) FILTER (quantity = 'preemptions') AS preemptions_increase,
        sum(increase) FILTER (quantity = 'generation_seconds') AS generation_seconds_increase,
        sum(increase) FILTER (quantity = 'prompt_seconds') AS prompt_seconds_increase,
        bool_or(source <> 'settled') FILTER (quantity = 'generation_tokens') AS generation_live,
        sum(increase) FILTER (working) AS generation_tokens_working_increase,
        sum(window_seconds) FILTER (working) AS generation_tokens_working_seconds
    FROM engine_rate_between(t0, t1, since := since, until := until)
    WHERE ts < t1 AND increase IS NOT NULL
    GROUP BY bucket_ts, host, engine_id, epoch_id
)
SELECT bucket_ts AS ts, * EXCLUDE (bucket_ts)
FROM gauge LEFT JOIN rate USING (bucket_ts, host, engine_id, epoch_id);

-- What histograms gained between consecutive snapshots of one epoch, at the later one. The first snapshot of all
-- counts from zero where the process was seen from its start; a histogram whose total fell begins anew.
CREATE MACRO latency_rollup(t0, t1, width_seconds, since, until) AS TABLE
WITH snapshot AS (
    SELECT host, engine_id, epoch_id, quantity, ts, monotonic_seconds,
        bucket_start(ts, width_seconds) AS bucket_ts,
        coalesce(cumulative_count < lag(cumulative_count) OVER earlier, false) AS restarted,
        lag(bucket_start(ts, width_seconds)) OVER earlier AS bucket_before
    FROM latency_bucket
    WHERE ts >= since AND ts <= until AND isinf(le)
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id, quantity ORDER BY monotonic_seconds)
),
-- consecutive snapshots of one bucket of time; a clock that was set back begins a bucket a second time
run AS (
    SELECT *, count_if(restarted) OVER earlier AS life,
        count_if(restarted OR bucket_ts IS DISTINCT FROM bucket_before) OVER earlier AS run
    FROM snapshot
    WINDOW earlier AS (PARTITION BY engine_id, epoch_id, quantity ORDER BY monotonic_seconds)
),
ends AS (
    SELECT host, engine_id, epoch_id, quantity, bucket_ts, life, run,
        min(ts) AS first_ts, max(ts) AS last_ts,
        min(monotonic_seconds) AS first_seconds, max(monotonic_seconds) AS last_seconds
    FROM run GROUP BY ALL
),
base AS (
    SELECT d.*,
        lag(d.last_seconds) OVER (PARTITION BY d.engine_id, d.epoch_id, d.quantity, d.life ORDER BY d.run) AS base_seconds,
        coalesce(d.life = 0 AND e.started_is_process_start AND e.started >= since
            AND e.first_seen <= e.started + INTERVAL 2 MINUTE, false) AS from_zero
    FROM ends AS d LEFT JOIN epoch_latest AS e ON e.epoch_id = d.epoch_id AND e.engine_id = d.engine_id
),
chosen AS (
    SELECT * REPLACE (CASE WHEN base_seconds IS NULL AND NOT from_zero THEN first_seconds ELSE base_seconds END
        AS base_seconds)
    FROM base WHERE bucket_ts >= bucket_start(t0, width_seconds) AND last_ts >= t0 AND last_ts < t1
),
side AS (
    SELECT *, last_seconds AS monotonic_seconds, 1 AS sign FROM chosen
    UNION ALL
    SELECT *, base_seconds AS monotonic_seconds, -1 AS sign FROM chosen WHERE base_seconds IS NOT NULL
),
gain AS (
    SELECT s.host, s.engine_id, s.epoch_id, s.quantity, s.bucket_ts, s.run, s.first_ts, s.last_ts, l.le,
        sum(s.sign * l.cumulative_count) AS observations,
        CASE WHEN count(*) = count(l.sum_seconds) THEN sum(s.sign * l.sum_seconds) END AS sum_seconds
    FROM latency_bucket AS l JOIN side AS s ON l.engine_id = s.engine_id AND l.epoch_id = s.epoch_id
        AND l.quantity = s.quantity AND l.monotonic_seconds = s.monotonic_seconds
    WHERE l.ts >= since AND l.ts <= until
    GROUP BY ALL
)
SELECT bucket_ts AS ts, host, engine_id, epoch_id, first_ts, last_ts, quantity,
    list(le ORDER BY le)::VARCHAR AS bounds, list(observations::BIGINT ORDER BY le) AS observations_increase,
    any_value(sum_seconds) AS seconds_increase
FROM gain
GROUP BY bucket_ts, host, engine_id, epoch_id, run, first_ts, last_ts, quantity
HAVING min(observations) >= 0;

-- Energy is a counter: its increases are those from row to row as they were written.
CREATE MACRO device_rollup(t0, t1, width_seconds, since, until) AS TABLE
WITH sample AS (
    SELECT bucket_start(ts, width_seconds) AS bucket_ts, host, device_id,
        min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS samples, arg_max(state, ts) AS state,
        arg_max(memory_total_bytes, ts) AS memory_total_bytes, arg_max(power_limit_watts, ts) AS power_limit_watts,
        count(memory_used_bytes) AS memory_used_bytes_count, sum(memory_used_bytes)::BIGINT AS memory_used_bytes_sum, min(memory_used_bytes) AS memory_used_bytes_min, max(memory_used_bytes) AS memory_used_bytes_max,
        arg_max(memory_used_bytes, ts) AS memory_used_bytes_last,
        count(memory_reserved_bytes) AS memory_reserved_bytes_count, sum(memory_reserved_bytes)::BIGINT AS memory_reserved_bytes_sum, min(memory_reserved_bytes) AS memory_reserved_bytes_min, max(memory_reserved_bytes) AS memory_reserved_bytes_max,
        arg_max(memory_reserved_bytes, ts) AS memory_reserved_bytes_last,
        count(utilisation_fraction) AS utilisation_fraction_count, sum(utilisation_fraction) AS utilisation_fraction_sum, min(utilisation_fraction) AS utilisation_fraction_min, max(utilisation_fraction) AS utilisation_fraction_max,
        arg_max(utilisation_fraction, ts) AS utilisation_fraction_last,
        count(memory_utilisation_fraction) AS memory_utilisation_fraction_count, sum(memory_utilisation_fraction) AS memory_utilisation_fraction_sum, min(memory_utilisation_fraction) AS memory_utilisation_fraction_min, max(memory_utilisation_fraction) AS memory_utilisation_fraction_max,
        arg_max(memory_utilisation_fraction, ts) AS memory_utilisation_fraction_last,
        count(power_watts) AS power_watts_count, sum(power_watts) AS power_watts_sum, min(power_watts) AS power_watts_min, max(power_watts) AS power_watts_max,
        arg_max(power_watts, ts) AS power_watts_last,
        count(temperature_celsius) AS temperature_celsius_count, sum(temperature_celsius) AS temperature_celsius_sum, min(temperature_celsius) AS temperature_celsius_min, max(temperature_celsius) AS temperature_celsius_max,
        arg_max(temperature_celsius, ts) AS temperature_celsius_last,
        count(sm_clock_hertz) AS sm_clock_hertz_count, sum(sm_clock_hertz) AS sm_clock_hertz_sum, min(sm_clock_hertz) AS sm_clock_hertz_min, max(sm_clock_hertz) AS sm_clock_hertz_max,
        arg_max(sm_clock_hertz, ts) AS sm_clock_hertz_last,
        count(memory_clock_hertz) AS memory_clock_hertz_count, sum(memory_clock_hertz) AS memory_clock_hertz_sum, min(memory_clock_hertz) AS memory_clock_hertz_min, max(memory_clock_hertz) AS memory_clock_hertz_max,
        arg_max(memory_clock_hertz, ts) AS memory_clock_hertz_last
    FROM device_sample
    WHERE ts >= t0 AND ts < t1
    GROUP BY bucket_ts, host, device_id
),
pair AS (
    SELECT ts, host, device_id, energy_joules_total - lag(energy_joules_total) OVER earlier AS joules
    FROM device_sample
    WHERE ts >= since AND ts <= until AND energy_joules_total IS NOT NULL
    WINDOW earlier AS (PARTITION BY host, device_id ORDER BY rowid)
),
energy AS (
    SELECT bucket_start(ts, width_seconds) AS bucket_ts, host, device_id, sum(joules) AS energy_joules_increase
    FROM pair WHERE joules >= 0 AND ts >= t0 AND ts < t1
    GROUP BY bucket_ts, host, device_id
),
listed AS (
    SELECT DISTINCT host, device_id, ts FROM process_memory
    WHERE ts >= t0 AND ts < t1 AND device_id IS NOT NULL AND memory_bytes IS NOT NULL
),
lists AS (
    SELECT bucket_start(l.ts, width_seconds) AS bucket_ts, l.host, l.device_id, count(*) AS lists,
        bool_or(d.ts IS NOT NULL) AS aligned
    FROM listed AS l LEFT JOIN (FROM device_sample WHERE ts >= t0 AND ts < t1) AS d
        ON d.host = l.host AND d.device_id = l.device_id AND d.ts = l.ts
    GROUP BY bucket_ts, l.host, l.device_id
)
SELECT s.bucket_ts AS ts, s.* EXCLUDE (bucket_ts), e.energy_joules_increase,
    coalesce(l.lists, 0) AS process_lists_count, coalesce(l.aligned, false) AS process_lists_aligned
FROM sample AS s
LEFT JOIN energy AS e ON e.bucket_ts = s.bucket_ts AND e.host = s.host AND e.device_id = s.device_id
LEFT JOIN lists AS l ON l.bucket_ts = s.bucket_ts AND l.host = s.host AND l.device_id = s.device_id;

CREATE MACRO host_rollup(t0, t1, width_seconds, since, until) AS TABLE
WITH sample AS (
    SELECT bucket_start(ts, width_seconds) AS bucket_ts, host,
        min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS samples,
        arg_max(cpu_count, ts) AS cpu_count, arg_max(memory_total_bytes, ts) AS memory_total_bytes,
        arg_max(swap_total_bytes, ts) AS swap_total_bytes,
        count(cpu_fraction) AS cpu_fraction_count, sum(cpu_fraction) AS cpu_fraction_sum, min(cpu_fraction) AS cpu_fraction_min, max(cpu_fraction) AS cpu_fraction_max,
        arg_max(cpu_fraction, ts) AS cpu_fraction_last,
        count(load_1m) AS load_1m_count, sum(load_1m) AS load_1m_sum, min(load_1m) AS load_1m_min, max(load_1m) AS load_1m_max,
        arg_max(load_1m, ts) AS load_1m_last,
        count(memory_available_bytes) AS memory_available_bytes_count, sum(memory_available_bytes)::BIGINT AS memory_available_bytes_sum, min(memory_available_bytes) AS memory_available_bytes_min, max(memory_available_bytes) AS memory_available_bytes_max,
        arg_max(memory_available_bytes, ts) AS memory_available_bytes_last,
        count(memory_unavailable_bytes) AS memory_unavailable_bytes_count, sum(memory_unavailable_bytes)::BIGINT AS memory_unavailable_bytes_sum, min(memory_unavailable_bytes) AS memory_unavailable_bytes_min, max(memory_unavailable_bytes) AS memory_unavailable_bytes_max,
        arg_max(memory_unavailable_bytes, ts) AS memory_unavailable_bytes_last,
        count(memory_used_bytes) AS memory_used_bytes_count, sum(memory_used_bytes)::BIGINT AS memory_used_bytes_sum, min(memory_used_bytes) AS memory_used_bytes_min, max(memory_used_bytes) AS memory_used_bytes_max,
        arg_max(memory_used_bytes, ts) AS memory_used_bytes_last,
        count(swap_used_bytes) AS swap_used_bytes_count, sum(swap_used_bytes)::BIGINT AS swap_used_bytes_sum, min(swap_used_bytes) AS swap_used_bytes_min, max(swap_used_bytes) AS swap_used_bytes_max,
        arg_max(swap_used_bytes, ts) AS swap_used_bytes_last
    FROM (
        SELECT *, memory_total_bytes - memory_available_bytes AS memory_unavailable_bytes
        FROM host_sample WHERE ts >= t0 AND ts < t1
    )
    GROUP BY bucket_ts, host
),
lists AS (
    SELECT bucket_start(ts, width_seconds) AS bucket_ts, host, count(DISTINCT ts) AS lists
    FROM process_memory
    WHERE ts >= t0 AND ts < t1 AND device_id IS NULL AND engine_id IS NOT NULL AND memory_bytes IS NOT NULL
    GROUP BY bucket_ts, host
)
SELECT bucket_ts AS ts, s.* EXCLUDE (bucket_ts), coalesce(l.lists, 0) AS process_lists_count
FROM sample AS s LEFT JOIN lists AS l USING (bucket_ts, host);

-- Sums are over moments: what a holder has at one time, over its processes.
CREATE MACRO process_memory_rollup(t0, t1, width_seconds, since, until) AS TABLE
WITH moment AS (
    SELECT host, device_id, engine_id, ts, min(method) AS method, max(method) AS other_method,
        sum(memory_bytes)::BIGINT AS memory_bytes, sum(cpu_cores) AS cpu_cores,
        sum(process_count)::BIGINT AS process_count
    FROM process_memory
    WHERE ts >= t0 AND ts < t1 AND (device_id IS NOT NULL OR engine_id IS NOT NULL)
    GROUP BY host, device_id, engine_id, ts
)
SELECT bucket_start(ts, width_seconds) AS ts, host, device_id, engine_id,
    min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS samples,
    CASE WHEN min(method) = max(other_method) THEN min(method) ELSE min(method) || '+' || max(other_method) END AS method,
    count(memory_bytes) AS memory_bytes_count, sum(memory_bytes)::BIGINT AS memory_bytes_sum, min(memory_bytes) AS memory_bytes_min, max(memory_bytes) AS memory_bytes_max,
    arg_max(memory_bytes, ts) AS memory_bytes_last,
    count(cpu_cores) AS cpu_cores_count, sum(cpu_cores) AS cpu_cores_sum, min(cpu_cores) AS cpu_cores_min, max(cpu_cores) AS cpu_cores_max,
    arg_max(cpu_cores, ts) AS cpu_cores_last,
    count(process_count) AS process_count_count, sum(process_count)::BIGINT AS process_count_sum, min(process_count) AS process_count_min, max(process_count) AS process_count_max,
    arg_max(process_count, ts) AS process_count_last
FROM moment
GROUP BY bucket_start(ts, width_seconds), host, device_id, engine_id;
