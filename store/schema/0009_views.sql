-- Hours of engines, latencies and devices as views with plain names, for a person's own SQL. They end now: rollups by
-- the hour, then by the minute, then the samples that are not rolled up yet. Days are UTC days.

CREATE VIEW engine_hours AS
WITH part AS (
    FROM engine_hour
    UNION ALL BY NAME (
        SELECT * REPLACE (bucket_start(ts, 3600) AS ts) FROM engine_minute WHERE ts >= (SELECT hour_until FROM rollup_state)
    )
    UNION ALL BY NAME (
        FROM engine_rollup(
            (SELECT greatest(minute_until, TIMESTAMPTZ '1970-01-01 00:00:00Z') FROM rollup_state),
            TIMESTAMPTZ '2200-01-01 00:00:00Z', 3600,
            (SELECT greatest(minute_until, TIMESTAMPTZ '1970-01-02 00:00:00Z') FROM rollup_state) - INTERVAL 120 SECOND,
            TIMESTAMPTZ '2200-01-01 00:00:00Z')
    )
)
SELECT
    (p.ts AT TIME ZONE 'UTC')::DATE AS day,
    p.ts AS hour,
    p.host,
    p.engine_id,
    coalesce(any_value(e.label), p.engine_id) AS engine,
    sum(p.generation_tokens_increase) AS generated_tokens,
    sum(p.prompt_tokens_increase) AS prompt_tokens,
    sum(p.requests_finished_increase) AS requests_finished,
    sum(p.generation_tokens_window_seconds) AS observed_seconds,
    sum(p.generation_tokens_working_increase) AS generated_tokens_working,
    sum(p.generation_tokens_working_seconds) AS working_seconds,
    sum(p.requests_running_sum) / nullif(sum(p.requests_running_count), 0) AS requests_running_mean,
    max(p.requests_running_max) AS requests_running_max,
    sum(p.requests_waiting_sum) / nullif(sum(p.requests_waiting_count), 0) AS requests_waiting_mean,
    max(p.requests_waiting_max) AS requests_waiting_max,
    sum(p.kv_used_fraction_sum) / nullif(sum(p.kv_used_fraction_count), 0) AS kv_used_fraction_mean,
    max(p.kv_used_fraction_max) AS kv_used_fraction_max
FROM part AS p LEFT JOIN engine_latest AS e USING (engine_id)
GROUP BY p.ts, p.host, p.engine_id;
COMMENT ON VIEW engine_hours IS 'what each engine did in each hour, up to now; sums are within lives of its process, NULL: the engine does not tell it';
COMMENT ON COLUMN engine_hours.day IS 'UTC day';
COMMENT ON COLUMN engine_hours.hour IS 'beginning of the hour, UTC';
COMMENT ON COLUMN engine_hours.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN engine_hours.engine_id IS 'engine that the row is about';
COMMENT ON COLUMN engine_hours.engine IS 'name that a person recognises; unique';
COMMENT ON COLUMN engine_hours.generated_tokens IS 'output tokens';
COMMENT ON COLUMN engine_hours.prompt_tokens IS 'prompt tokens that were computed; those from a prefix cache are not in it';
COMMENT ON COLUMN engine_hours.requests_finished IS 'requests that ended';
COMMENT ON COLUMN engine_hours.observed_seconds IS 'elapsed seconds that generated_tokens was counted over';
COMMENT ON COLUMN engine_hours.generated_tokens_working IS 'of generated_tokens, what came while requests were known to run';
COMMENT ON COLUMN engine_hours.working_seconds IS 'elapsed seconds of that; their ratio is the throughput under load';
COMMENT ON COLUMN engine_hours.requests_running_mean IS 'requests, mean of all samples';
COMMENT ON COLUMN engine_hours.requests_running_max IS 'requests';
COMMENT ON COLUMN engine_hours.requests_waiting_mean IS 'requests, mean of all samples';
COMMENT ON COLUMN engine_hours.requests_waiting_max IS 'requests';
COMMENT ON COLUMN engine_hours.kv_used_fraction_mean IS '0..1, mean of all samples';
COMMENT ON COLUMN engine_hours.kv_used_fraction_max IS '0..1';

CREATE VIEW latency_hours AS
WITH part AS (
    FROM latency_hour
    UNION ALL BY NAME (
        SELECT * REPLACE (bucket_start(ts, 3600) AS ts) FROM latency_minute WHERE ts >= (SELECT hour_until FROM rollup_state)
    )
    UNION ALL BY NAME (
        FROM latency_rollup(
            (SELECT greatest(minute_until, TIMESTAMPTZ '1970-01-01 00:00:00Z') FROM rollup_state),
            TIMESTAMPTZ '2200-01-01 00:00:00Z', 3600,
            (SELECT greatest(minute_until, TIMESTAMPTZ '1970-01-02 00:00:00Z') FROM rollup_state) - INTERVAL 120 SECOND,
            TIMESTAMPTZ '2200-01-01 00:00:00Z')
    )
),
bucket AS (
    SELECT row_number() OVER () AS histogram, ts, host, engine_id, quantity, seconds_increase,
        unnest(bounds::DOUBLE[]) AS le, unnest(observations_increase) AS cumulative
    FROM part
),
single AS (
    SELECT ts, host, engine_id, quantity, le,
        cumulative - coalesce(lag(cumulative) OVER lower_bounds, 0) AS observations,
        CASE WHEN isinf(le) THEN seconds_increase END AS sum_seconds
    FROM bucket
    WINDOW lower_bounds AS (PARTITION BY histogram ORDER BY le)
)
SELECT
    (s.ts AT TIME ZONE 'UTC')::DATE AS day,
    s.ts AS hour,
    s.host,
    s.engine_id,
    coalesce(any_value(e.label), s.engine_id) AS engine,
    s.quantity,
    s.le,
    sum(s.observations) AS observations,
    sum(s.sum_seconds) AS sum_seconds
FROM single AS s LEFT JOIN engine_latest AS e USING (engine_id)
GROUP BY s.ts, s.host, s.engine_id, s.quantity, s.le;
COMMENT ON VIEW latency_hours IS 'latencies that each engine measured in each hour, up to now, by histogram bucket; buckets may be added over hours and engines that have the same bounds';
COMMENT ON COLUMN latency_hours.day IS 'UTC day';
COMMENT ON COLUMN latency_hours.hour IS 'beginning of the hour, UTC';
COMMENT ON COLUMN latency_hours.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN latency_hours.engine_id IS 'engine that the row is about';
COMMENT ON COLUMN latency_hours.engine IS 'name that a person recognises; unique';
COMMENT ON COLUMN latency_hours.quantity IS 'ttft_seconds, itl_seconds, tpot_seconds, e2e_seconds, queue_seconds';
COMMENT ON COLUMN latency_hours.le IS 'upper bound of the bucket in seconds, inclusive; infinity for the last';
COMMENT ON COLUMN latency_hours.observations IS 'observations in this bucket alone: above the bound before, at or below le';
COMMENT ON COLUMN latency_hours.sum_seconds IS 'seconds, sum of all observations of the histogram; on its last bucket only';

CREATE VIEW device_hours AS
WITH part AS (
    FROM device_hour
    UNION ALL BY NAME (
        SELECT * REPLACE (bucket_start(ts, 3600) AS ts) FROM device_minute WHERE ts >= (SELECT hour_until FROM rollup_state)
    )
    UNION ALL BY NAME (
        FROM device_rollup(
            (SELECT greatest(minute_until, TIMESTAMPTZ '1970-01-01 00:00:00Z') FROM rollup_state),
            TIMESTAMPTZ '2200-01-01 00:00:00Z', 3600,
            (SELECT greatest(minute_until, TIMESTAMPTZ '1970-01-02 00:00:00Z') FROM rollup_state) - INTERVAL 120 SECOND,
            TIMESTAMPTZ '2200-01-01 00:00:00Z')
    )
)
SELECT
    (p.ts AT TIME ZONE 'UTC')::DATE AS day,
    p.ts AS hour,
    p.host,
    p.device_id,
    any_value(d."index") AS "index",
    any_value(d.name) AS device,
    sum(p.energy_joules_increase) AS energy_joules,
    sum(p.power_watts_sum) / nullif(sum(p.power_watts_count), 0) AS power_watts_mean,
    max(p.power_watts_max) AS power_watts_max,
    sum(p.utilisation_fraction_sum) / nullif(sum(p.utilisation_fraction_count), 0) AS utilisation_fraction_mean,
    max(p.utilisation_fraction_max) AS utilisation_fraction_max,
    sum(p.memory_used_bytes_sum) / nullif(sum(p.memory_used_bytes_count), 0) AS memory_used_bytes_mean,
    max(p.memory_used_bytes_max) AS memory_used_bytes_max
FROM part AS p LEFT JOIN device_latest AS d USING (device_id)
GROUP BY p.ts, p.host, p.device_id;
COMMENT ON VIEW device_hours IS 'what each device did in each hour, up to now';
COMMENT ON COLUMN device_hours.day IS 'UTC day';
COMMENT ON COLUMN device_hours.hour IS 'beginning of the hour, UTC';
COMMENT ON COLUMN device_hours.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN device_hours.device_id IS 'the driver''s own unique name of the device';
COMMENT ON COLUMN device_hours."index" IS 'the driver''s number of the device';
COMMENT ON COLUMN device_hours.device IS 'product name';
COMMENT ON COLUMN device_hours.energy_joules IS 'joules by the device''s own counter; NULL: it has none';
COMMENT ON COLUMN device_hours.power_watts_mean IS 'watts, mean of all samples';
COMMENT ON COLUMN device_hours.power_watts_max IS 'watts';
COMMENT ON COLUMN device_hours.utilisation_fraction_mean IS '0..1, mean of all samples';
COMMENT ON COLUMN device_hours.utilisation_fraction_max IS '0..1';
COMMENT ON COLUMN device_hours.memory_used_bytes_mean IS 'bytes, mean of all samples';
COMMENT ON COLUMN device_hours.memory_used_bytes_max IS 'bytes';
