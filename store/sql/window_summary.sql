-- One engine from start to end, in one row: what it did, held and used, and how much of the window is known.
-- Rates are increases over the elapsed time of their pairs of samples; `working` are the pairs with a request running at
-- either end. Memory is the mean while any was held, and the peak; over several devices both are sums over them.
-- Utilisation, power and energy are of the whole devices that the engine held memory on, whoever else used them:
-- `sharing_engine_ids` are the other engines that held memory on them and were not idle throughout. Energy is
-- from the devices' counters, where all have one, else mean power x time.
WITH engine AS (
    SELECT * FROM (@engine) WHERE engine_id = $engine_id
),
did AS (
    SELECT count(DISTINCT epoch_id) AS epochs, list(DISTINCT epoch_id ORDER BY epoch_id) AS epoch_ids,
        sum(samples)::BIGINT AS samples, sum(ready_samples)::BIGINT AS ready_samples,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts,
        sum(generation_tokens_window_seconds) AS covered_seconds,
        sum(generation_tokens_increase) AS generation_tokens,
        sum(generation_tokens_increase) / nullif(sum(generation_tokens_window_seconds), 0) AS generation_tokens_per_second,
        sum(generation_tokens_working_seconds) AS working_seconds,
        sum(generation_tokens_working_increase) / nullif(sum(generation_tokens_working_seconds), 0)
            AS working_generation_tokens_per_second,
        CASE WHEN bool_or(generation_live) THEN 'live' WHEN count(generation_tokens_increase) > 0 THEN 'settled' END
            AS generation_source,
        sum(prompt_tokens_increase) AS prompt_tokens,
        sum(prompt_tokens_increase) / nullif(sum(prompt_tokens_window_seconds), 0) AS prompt_tokens_per_second,
        sum(prefix_cache_hit_tokens_increase) / nullif(sum(prefix_cache_query_tokens_increase), 0)
            AS prefix_cache_hit_fraction,
        sum(requests_finished_increase) AS requests_finished,
        sum(requests_finished_increase) / nullif(sum(requests_finished_window_seconds), 0) AS requests_per_second,
        sum(preemptions_increase) AS preemptions,
        sum(generation_seconds_increase) / nullif(sum(settled_generation_tokens_increase)
            FILTER (generation_seconds_increase IS NOT NULL), 0) AS mean_seconds_per_token,
        sum(requests_running_sum) / nullif(sum(requests_running_count), 0) AS requests_running_mean,
        max(requests_running_max) AS requests_running_max,
        sum(requests_waiting_sum) / nullif(sum(requests_waiting_count), 0) AS requests_waiting_mean,
        max(requests_waiting_max) AS requests_waiting_max,
        sum(kv_used_fraction_sum) / nullif(sum(kv_used_fraction_count), 0) AS kv_used_fraction_mean,
        max(kv_used_fraction_max) AS kv_used_fraction_max,
        arg_max(kv_capacity_tokens_last, last_ts) AS kv_capacity_tokens
    FROM engine
),
memory AS (
    SELECT * FROM (@process_memory)
),
place AS (
    SELECT device_id, string_agg(DISTINCT method, '+' ORDER BY method) AS method,
        sum(memory_bytes_sum) / nullif(sum(memory_bytes_count), 0) AS mean_bytes, max(memory_bytes_max) AS peak_bytes,
        sum(cpu_cores_sum) / nullif(sum(cpu_cores_count), 0) AS cpu_cores_mean, max(cpu_cores_max) AS cpu_cores_max
    FROM memory WHERE engine_id = $engine_id
    GROUP BY device_id
),
held AS (
    SELECT CASE WHEN count_if(device_id IS NOT NULL AND mean_bytes IS NULL) = 0
            THEN sum(mean_bytes) FILTER (device_id IS NOT NULL) END AS device_memory_mean_bytes,
        CASE WHEN count_if(device_id IS NOT NULL AND peak_bytes IS NULL) = 0
            THEN sum(peak_bytes) FILTER (device_id IS NOT NULL) END::BIGINT AS device_memory_peak_bytes,
        string_agg(DISTINCT method, '+' ORDER BY method) FILTER (device_id IS NOT NULL) AS device_memory_method,
        any_value(mean_bytes) FILTER (device_id IS NULL) AS host_memory_mean_bytes,
        any_value(peak_bytes) FILTER (device_id IS NULL) AS host_memory_peak_bytes,
        any_value(method) FILTER (device_id IS NULL) AS host_memory_method,
        any_value(cpu_cores_mean) FILTER (device_id IS NULL) AS cpu_cores_mean,
        any_value(cpu_cores_max) FILTER (device_id IS NULL) AS cpu_cores_max,
        coalesce(list(DISTINCT device_id ORDER BY device_id) FILTER (device_id IS NOT NULL), []) AS device_ids
    FROM place
),
-- engines that are known to have done nothing
idle AS (
    SELECT engine_id FROM (@running) GROUP BY engine_id HAVING max(requests_running) = 0
),
sharing AS (
    SELECT coalesce(list(DISTINCT m.engine_id ORDER BY m.engine_id), []) AS sharing_engine_ids
    FROM memory AS m SEMI JOIN place AS p ON m.device_id = p.device_id
    WHERE m.engine_id <> $engine_id AND m.memory_bytes_max > 0 AND m.engine_id NOT IN (FROM idle)
),
device AS (
    SELECT device_id, sum(utilisation_fraction_sum) AS utilisation_sum, sum(utilisation_fraction_count) AS utilisations,
        sum(power_watts_sum) / nullif(sum(power_watts_count), 0) AS power_watts, max(power_watts_max) AS power_watts_max,
        sum(energy_joules_increase) AS energy_joules,
        -- each sample stands for the usual distance of two
        sum(samples) * median(epoch(last_ts - first_ts) / nullif(samples - 1, 0)) AS sampled_seconds
    FROM (@device)
    WHERE device_id IN (SELECT device_id FROM place WHERE device_id IS NOT NULL)
    GROUP BY device_id
),
used AS (
    SELECT sum(utilisation_sum) / nullif(sum(utilisations), 0) AS utilisation_fraction_mean,
        CASE WHEN count(power_watts) = count(*) THEN sum(power_watts) END AS power_watts_mean,
        CASE WHEN count(power_watts) = count(*) THEN sum(power_watts_max) END AS power_watts_max,
        CASE WHEN count(energy_joules) = count(*) THEN sum(energy_joules)
            WHEN count(power_watts) = count(*) THEN sum(power_watts * sampled_seconds) END AS energy_joules,
        CASE WHEN count(*) = 0 THEN NULL WHEN count(energy_joules) = count(*) THEN 'counter'
            WHEN count(power_watts) = count(*) THEN 'power_integral' END AS energy_method
    FROM device
)
SELECT e.host, $engine_id AS engine_id, e.label, e.kind, d.*, h.*, s.*, u.*,
    u.energy_joules / nullif(d.generation_tokens, 0) AS joules_per_output_token
FROM did AS d CROSS JOIN held AS h CROSS JOIN sharing AS s CROSS JOIN used AS u
LEFT JOIN engine_latest AS e ON e.engine_id = $engine_id
