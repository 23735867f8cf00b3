-- Past days are written anew, sorted by key: see store/compaction.py. Energy is read in the order in which rows were
-- written, which the sorted copies of a past day no longer have with regard to other days.

CREATE TABLE compacted (
    table_name VARCHAR NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE compacted IS 'how far the rows of a table were written anew, sorted';
COMMENT ON COLUMN compacted.table_name IS 'table of the rows';
COMMENT ON COLUMN compacted.until IS 'rows before this time were, except those that came later, UTC';

CREATE TABLE device_sample_late (
    ts TIMESTAMPTZ NOT NULL,
    device_id VARCHAR NOT NULL
);
COMMENT ON TABLE device_sample_late IS 'rows of device_sample that came for a time that was rolled up already, until they are compacted';
COMMENT ON COLUMN device_sample_late.ts IS 'ts of the row, UTC';
COMMENT ON COLUMN device_sample_late.device_id IS 'device of the row';

-- The rows of each device in the order in which they were written. Sorted copies come first: only days that were
-- over before the next one began are sorted.
CREATE MACRO device_energy(since, until) AS TABLE
SELECT d.ts, d.host, d.device_id, d.energy_joules_total,
    d.rowid + CASE
        WHEN d.ts >= coalesce((SELECT max(c.until) FROM compacted AS c WHERE c.table_name = 'device_sample'), '-infinity'::TIMESTAMPTZ)
            OR (d.device_id, d.ts) IN (SELECT (l.device_id, l.ts) FROM device_sample_late AS l)
        THEN 4611686018427387904 ELSE 0 END AS place
FROM device_sample AS d
WHERE d.ts >= since AND d.ts <= until AND d.energy_joules_total IS NOT NULL;

-- Energy is a counter: its increases are those from row to row as they were written.
CREATE OR REPLACE MACRO device_rollup(t0, t1, width_seconds, since, until) AS TABLE
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
    FROM device_energy(since, until)
    WINDOW earlier AS (PARTITION BY host, device_id ORDER BY place)
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
