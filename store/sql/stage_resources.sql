-- What one engine and the devices that it held memory of used from $start to $end: a row without a device for its host
-- memory and CPU, and one for each device. All from raw samples; samples = 0 where none fell into the range.
-- energy_joules is of the whole device: its own counter's increase where it has one, else power over time, each over
-- pairs of successive samples by the share of the pair that lies in the range. NULL where pairs of at most 5 s cover
-- less than 98 % of it. others_memory_bytes is the most that processes of nobody or of other engines held at once;
-- NULL where the driver does not tell what each process holds.
WITH held AS (
    SELECT device_id, ts, string_agg(DISTINCT method, '+' ORDER BY method) AS method,
        CASE WHEN count(*) = count(memory_bytes) THEN sum(memory_bytes) END::DOUBLE AS memory_bytes,
        sum(cpu_cores) AS cpu_cores
    FROM process_memory
    WHERE ts >= $start AND ts <= $end AND engine_id = $engine_id
    GROUP BY device_id, ts
),
held_by_others AS (
    SELECT p.device_id, p.ts, sum(p.memory_bytes) AS memory_bytes
    FROM process_memory AS p
    SEMI JOIN held AS h ON p.device_id = h.device_id AND p.ts = h.ts AND h.method IN ('nvml_process', 'fdinfo')
    WHERE p.ts >= $start AND p.ts <= $end AND p.engine_id IS DISTINCT FROM $engine_id AND p.device_id IS NOT NULL
    GROUP BY p.device_id, p.ts
),
memory AS (
    SELECT h.device_id, arg_max(h.method, h.ts) AS memory_method,
        avg(h.memory_bytes) AS memory_mean_bytes, max(h.memory_bytes) AS memory_peak_bytes,
        avg(h.cpu_cores) AS cpu_cores_mean,
        max(CASE WHEN h.method IN ('nvml_process', 'fdinfo') THEN coalesce(o.memory_bytes, 0) END)::DOUBLE AS others_memory_bytes,
        count(*) AS samples
    FROM held AS h LEFT JOIN held_by_others AS o ON o.device_id = h.device_id AND o.ts = h.ts
    GROUP BY h.device_id
),
device AS (
    SELECT d.* FROM device_sample AS d SEMI JOIN memory AS m ON d.device_id = m.device_id
    WHERE d.ts >= $start - INTERVAL 10 SECOND AND d.ts <= $end + INTERVAL 10 SECOND
),
pair AS (
    SELECT device_id,
        epoch(ts) - epoch(lag(ts) OVER earlier) AS pair_seconds,
        least(epoch(ts), epoch($end::TIMESTAMPTZ)) - greatest(epoch(lag(ts) OVER earlier), epoch($start::TIMESTAMPTZ))
            AS inside_seconds,
        energy_joules_total - lag(energy_joules_total) OVER earlier AS counted_joules,
        (power_watts + lag(power_watts) OVER earlier) / 2 AS watts
    FROM device
    WINDOW earlier AS (PARTITION BY device_id ORDER BY ts)
),
energy AS (
    SELECT device_id,
        sum(counted_joules * inside_seconds / pair_seconds) FILTER (counted_joules >= 0) AS counted_joules,
        coalesce(sum(inside_seconds) FILTER (counted_joules >= 0), 0) AS counted_seconds,
        sum(watts * inside_seconds) AS integrated_joules,
        coalesce(sum(inside_seconds) FILTER (watts IS NOT NULL), 0) AS integrated_seconds,
        0.98 * (epoch($end::TIMESTAMPTZ) - epoch($start::TIMESTAMPTZ)) AS needed_seconds
    FROM pair
    WHERE pair_seconds > 0 AND pair_seconds <= 5 AND inside_seconds > 0
    GROUP BY device_id
),
used AS (
    SELECT device_id, avg(utilisation_fraction) AS utilisation_mean_fraction, avg(power_watts) AS power_mean_watts,
        count(*) AS samples
    FROM device WHERE ts >= $start AND ts <= $end
    GROUP BY device_id
)
SELECT NULL::VARCHAR AS device_id, any_value(memory_method) AS memory_method,
    any_value(memory_mean_bytes) AS memory_mean_bytes, any_value(memory_peak_bytes) AS memory_peak_bytes,
    any_value(cpu_cores_mean) AS cpu_cores_mean, NULL::DOUBLE AS utilisation_mean_fraction,
    NULL::DOUBLE AS power_mean_watts, NULL::DOUBLE AS energy_joules, NULL::VARCHAR AS energy_method,
    NULL::DOUBLE AS others_memory_bytes, coalesce(sum(samples), 0)::BIGINT AS samples
FROM memory WHERE device_id IS NULL
UNION ALL
SELECT m.device_id, m.memory_method, m.memory_mean_bytes, m.memory_peak_bytes, NULL AS cpu_cores_mean,
    u.utilisation_mean_fraction, u.power_mean_watts,
    CASE
        WHEN e.counted_seconds >= e.needed_seconds THEN e.counted_joules
        WHEN e.integrated_seconds >= e.needed_seconds THEN e.integrated_joules
    END AS energy_joules,
    CASE
        WHEN e.counted_seconds >= e.needed_seconds THEN 'counter'
        WHEN e.integrated_seconds >= e.needed_seconds THEN 'power_integral'
    END AS energy_method,
    m.others_memory_bytes, coalesce(u.samples, 0) AS samples
FROM memory AS m LEFT JOIN energy AS e USING (device_id) LEFT JOIN used AS u USING (device_id)
WHERE m.device_id IS NOT NULL
ORDER BY device_id NULLS FIRST
