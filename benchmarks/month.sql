-- Samples of [day_begin, day_end) of benchmarks/month.py. Randomness is a hash of what and when.
CREATE OR REPLACE TEMP MACRO chance(what, moment) AS (hash(what, moment) % 1000003) / 1000003.0;
-- How busy the host is, 0..1: nights and weekends are quiet.
CREATE OR REPLACE TEMP MACRO busy(seconds, place) AS
    greatest(0.02, 0.5 - 0.48 * cos(2 * pi() * ((seconds / 3600.0 - 2 - place * 0.7) / 24)))
    * CASE WHEN (seconds // 86400 + 4) % 7 IN (0, 6) THEN 0.35 ELSE 1 END;

CREATE OR REPLACE TEMP TABLE tick AS
SELECT t, make_timestamptz(t * 1000000) AS moment
FROM range(epoch(getvariable('day_begin'))::BIGINT, epoch(getvariable('day_end'))::BIGINT) AS r(t)
WHERE NOT EXISTS (FROM hole AS h WHERE make_timestamptz(t * 1000000) >= h."begin" AND make_timestamptz(t * 1000000) < h."end");

-- Each engine every 2 s: how many requests run, and how many tokens came since the tick before.
CREATE OR REPLACE TEMP TABLE work AS
WITH asked AS (
    SELECT l.*, k.t, k.moment,
        make_timestamptz(k.t * 1000000 + l.place * 7000 + (chance(l.engine_id, k.t) * 900)::BIGINT) AS ts,
        CASE WHEN k.moment < l."begin" + (l.ready - l."begin") / 3 THEN 'unreachable'
            WHEN k.moment < l.ready THEN 'loading' ELSE 'ready' END AS state,
        l.slots * l.load * busy(k.t, l.place)
            * (0.35 + chance(l.engine_id || 'a', k.t // 1200) + 0.5 * chance(l.engine_id || 'b', k.t // 60))
            + 2 * chance(l.engine_id || 'c', k.t // 10) - 1 AS wanted
    FROM life AS l JOIN (FROM tick WHERE t % 2 = 0) AS k ON k.moment >= l."begin" AND k.moment < l."end"
)
SELECT *, CASE WHEN state = 'ready' THEN least(slots, greatest(0, round(wanted))) ELSE 0 END AS running,
    CASE WHEN state = 'ready' THEN greatest(0, round(wanted - slots)) ELSE 0 END AS waiting,
    CASE WHEN state = 'ready' THEN least(slots, greatest(0, round(wanted))) / slots ELSE 0 END AS share,
    CASE WHEN state = 'ready' THEN round(2 * speed * pow(least(slots, greatest(0, round(wanted))), 0.85)
        * (0.9 + 0.2 * chance(engine_id || 'd', t))) ELSE 0 END AS tokens
FROM asked;

-- Counters since the process started, carried over from the day before.
CREATE OR REPLACE TEMP TABLE counted AS
WITH before AS (
    SELECT epoch_id,
        arg_max(coalesce(generation_live_tokens_total, generation_tokens_total), ts) AS live,
        arg_max(generation_tokens_total, ts) AS settled,
        arg_max(prompt_tokens_total, ts) AS prompt, arg_max(requests_finished_total, ts) AS finished,
        arg_max(prefix_cache_hit_tokens_total, ts) AS hit
    FROM engine_sample
    WHERE ts >= getvariable('day_begin') - INTERVAL 6 HOUR AND ts < getvariable('day_begin')
    GROUP BY epoch_id
),
summed AS (
    SELECT w.*, coalesce(b.live, 0) + sum(tokens) OVER life_so_far AS live,
        coalesce(b.settled, 0) AS settled_before,
        coalesce(b.prompt, 0) + sum(round(tokens * (3 + 2 * chance(engine_id || 'p', t // 600)))) OVER life_so_far AS prompt,
        coalesce(b.hit, 0) + sum(round(tokens * 1.2 * chance(engine_id || 'h', t // 1800))) OVER life_so_far AS hit
    FROM work AS w LEFT JOIN before AS b USING (epoch_id)
    WINDOW life_so_far AS (PARTITION BY w.epoch_id ORDER BY t)
)
SELECT *, floor(live / 200) AS finished,
    CASE WHEN kind <> 'llama.cpp' THEN live ELSE greatest(settled_before, max(
        CASE WHEN running = 0 THEN live ELSE floor(live / 800) * 800 END) OVER (PARTITION BY epoch_id ORDER BY t)) END
        AS settled
FROM summed;

INSERT INTO engine_sample BY NAME
SELECT ts, round(epoch(ts) - getvariable('booted'), 6) AS monotonic_seconds, getvariable('host_name') AS host, engine_id, epoch_id, state,
    CASE state WHEN 'loading' THEN 'GET /health answered 503: the model is being loaded. Nothing to do but wait.'
        WHEN 'unreachable' THEN 'Nothing accepts connections although the process runs. Look into the engine''s own log.'
        END AS detail,
    CASE WHEN told THEN settled END AS generation_tokens_total,
    CASE WHEN told AND kind = 'llama.cpp' THEN live END AS generation_live_tokens_total,
    CASE WHEN told THEN prompt END AS prompt_tokens_total,
    CASE WHEN told AND kind IN ('vllm', 'sglang') THEN prompt + hit END AS prompt_with_cached_tokens_total,
    CASE WHEN told AND kind IN ('vllm', 'sglang') THEN prompt + hit END AS prefix_cache_query_tokens_total,
    CASE WHEN told AND kind IN ('vllm', 'sglang') THEN hit END AS prefix_cache_hit_tokens_total,
    CASE WHEN told AND kind <> 'llama.cpp' THEN finished END AS requests_finished_total,
    CASE WHEN told AND kind = 'vllm' THEN floor(live / 4000000) END AS preemptions_total,
    CASE WHEN told AND kind = 'llama.cpp' THEN round(settled / speed, 3) END AS generation_seconds_total,
    CASE WHEN told AND kind = 'llama.cpp' THEN round(prompt / 2500, 3) END AS prompt_seconds_total,
    CASE WHEN told THEN running END AS requests_running,
    CASE WHEN told THEN waiting END AS requests_waiting,
    CASE WHEN told AND kind IN ('vllm', 'sglang', 'llama.cpp')
        -- blocks in use of those that there are, as vLLM tells it: with all its digits
        THEN floor(share * (0.8 + 0.15 * chance(engine_id || 'k', t // 30)) * slots * 256) / (slots * 256) END
        AS kv_used_fraction,
    CASE WHEN told AND kind <> 'tgi' THEN slots * 4096 END AS kv_capacity_tokens
FROM (SELECT *, state = 'ready' AND kind <> 'ollama' AS told FROM counted)
ORDER BY t, place;

-- Histograms every 10 s where something was counted, else every minute. Two kinds of requests, quick and slow ones:
-- the more an engine has to do, the more of them are slow.
CREATE TEMP TABLE IF NOT EXISTS answered (epoch_id VARCHAR, t BIGINT, quick DOUBLE, slow DOUBLE);
CREATE OR REPLACE TEMP TABLE request AS
WITH snapshot AS (
    SELECT engine_id, epoch_id, place, ts, t, share,
        coalesce(live - lag(live) OVER (PARTITION BY epoch_id ORDER BY t), 0) AS gained
    FROM counted WHERE t % 10 = 0 AND state = 'ready' AND engine_id IN (SELECT engine_id FROM grid)
),
before AS (
    SELECT epoch_id, max(quick) AS quick, max(slow) AS slow FROM answered GROUP BY epoch_id
)
SELECT s.*,
    coalesce(b.quick, 0) + sum(gained * (1 - least(0.9, 0.05 + share * share)) / 200) OVER so_far AS quick,
    coalesce(b.slow, 0) + sum(gained * least(0.9, 0.05 + share * share) / 200) OVER so_far AS slow
FROM snapshot AS s LEFT JOIN before AS b USING (epoch_id)
WINDOW so_far AS (PARTITION BY epoch_id ORDER BY t);
INSERT INTO answered SELECT epoch_id, max(t), max(quick), max(slow) FROM request GROUP BY epoch_id;

INSERT INTO latency_bucket BY NAME
WITH told AS (
    SELECT * REPLACE (floor(quick) AS quick, floor(slow) AS slow) FROM request WHERE gained > 0 OR t % 60 = 0
),
spread AS (
    SELECT t.*, g.quantity, g.le,
        CASE WHEN g.quantity IN ('itl_seconds', 'tpot_seconds') THEN 40 ELSE 1 END AS times,
        CASE WHEN isinf(g.le) THEN 1 ELSE 1 / (1 + exp(-1.7 * (ln(g.le) - ln(g.typical)) / g.spread)) END AS quick_share,
        CASE WHEN isinf(g.le) THEN 1 ELSE 1 / (1 + exp(-1.7 * (ln(g.le) - ln(g.typical * 4)) / g.spread)) END AS slow_share,
        g.typical
    FROM told AS t JOIN grid AS g USING (engine_id)
)
SELECT ts, round(epoch(ts) - getvariable('booted'), 6) AS monotonic_seconds, getvariable('host_name') AS host, engine_id, epoch_id, quantity, le,
    floor(times * quick * quick_share) + floor(times * slow * slow_share)
        AS cumulative_count,
    times * typical * (1.15 * quick + 4.6 * slow) AS sum_seconds
FROM spread
ORDER BY t, place, quantity, le;

-- GPUs every second: as busy as the engines on them.
CREATE OR REPLACE TEMP TABLE card AS
WITH used AS (
    SELECT p.gpu, p.device_id, w.t, sum(w.device_bytes) FILTER (w.state <> 'unreachable') AS held, least(1, sum(w.share)) AS share
    FROM work AS w JOIN placed AS p USING (engine_id) GROUP BY p.gpu, p.device_id, w.t
)
SELECT u.gpu, u.device_id, k.t, make_timestamptz(k.t * 1000000 + 1500 + (chance('gpu', k.t) * 700)::BIGINT) AS ts,
    u.held, u.share,
    round((71 + 560 * pow(u.share, 0.7) + 25 * chance(u.device_id, k.t)) * 1000) / 1000 AS watts
FROM tick AS k JOIN used AS u ON u.t = k.t - k.t % 2;

INSERT INTO device_sample BY NAME
WITH before AS (
    SELECT device_id, arg_max(energy_joules_total, ts) AS joules FROM device_sample
    WHERE ts >= getvariable('day_begin') - INTERVAL 6 HOUR AND ts < getvariable('day_begin') GROUP BY device_id
)
SELECT ts, getvariable('host_name') AS host, c.device_id, 'ok' AS state, NULL AS detail, 85899345920 AS memory_total_bytes,
    coalesce(held, 0) + 612368384 AS memory_used_bytes, 612368384 AS memory_reserved_bytes,
    round(least(1, share * 1.2 + 0.1 * chance(c.device_id || 'u', t)) * (share > 0)::INT, 2) AS utilisation_fraction,
    round(share * 0.6, 2) AS memory_utilisation_fraction,
    watts AS power_watts, 700.0 AS power_limit_watts,
    round(34 + 34 * share + 2 * chance(c.device_id || 't', t // 20)) AS temperature_celsius,
    CASE WHEN share > 0.9 THEN 1755e6 - 15e6 * floor(12 * chance(c.device_id || 's', t)) WHEN share > 0 THEN 1980e6
        ELSE 345e6 END AS sm_clock_hertz,
    CASE WHEN share > 0 THEN 2619e6 ELSE 1593e6 END AS memory_clock_hertz,
    round(coalesce(b.joules, 0) + sum(watts) OVER (PARTITION BY c.device_id ORDER BY t), 3) AS energy_joules_total
FROM card AS c LEFT JOIN before AS b USING (device_id)
ORDER BY t, gpu;

INSERT INTO process_memory BY NAME
SELECT c.ts, getvariable('host_name') AS host, w.engine_id, w.epoch_id, c.device_id, 4000 + w.place AS pid,
    w.kind AS process_name, 'nvml_process' AS method, w.device_bytes AS memory_bytes, NULL AS cpu_cores, NULL AS process_count
FROM card AS c JOIN placed AS p USING (device_id) JOIN work AS w ON w.engine_id = p.engine_id AND w.t = c.t - c.t % 2
WHERE w.state <> 'unreachable'
ORDER BY c.t, c.gpu, w.place;

INSERT INTO process_memory BY NAME
SELECT make_timestamptz(t * 1000000 + 90000 + (chance('tree', t) * 900)::BIGINT) AS ts, getvariable('host_name') AS host,
    engine_id, epoch_id, NULL AS device_id, 4000 + place AS pid, kind AS process_name, 'rss' AS method,
    host_bytes + 4096 * floor(chance(engine_id || 'r', t // 30) * 60000)::BIGINT AS memory_bytes,
    round(0.02 + running / slots * 1.4 + 0.2 * chance(engine_id || 'cpu', t), 3) AS cpu_cores, 3 AS process_count
FROM work
ORDER BY t, place;

INSERT INTO host_sample BY NAME
WITH sum_of AS (
    SELECT t, sum(running) AS running, sum(host_bytes) AS held FROM work GROUP BY t
)
SELECT make_timestamptz(k.t * 1000000 + 300 + (chance('host', k.t) * 300)::BIGINT) AS ts, getvariable('host_name') AS host,
    round(least(1, 0.03 + s.running / 260 + 0.04 * chance('cpu', k.t)), 3) AS cpu_fraction, 64 AS cpu_count,
    round(64 * (0.03 + s.running / 260 + 0.02 * chance('load', k.t // 5)), 2) AS load_1m, 549755813888 AS memory_total_bytes,
    549755813888 - (s.held + 21474836480 + 4096 * floor(chance('mem', k.t // 5) * 200000)::BIGINT)::BIGINT AS memory_available_bytes,
    (s.held + 20474836480 + 4096 * floor(chance('mem', k.t // 5) * 200000)::BIGINT)::BIGINT AS memory_used_bytes,
    8589934592 AS swap_total_bytes, 4096 * floor(chance('swap', k.t // 3600) * 2000)::BIGINT AS swap_used_bytes
FROM tick AS k JOIN sum_of AS s ON s.t = k.t - k.t % 2
ORDER BY k.t;

INSERT INTO source_health BY NAME
WITH source AS (
    SELECT t, ts, 'engine:' || engine_id AS source_id, 'engine' AS kind, state, detail, 2.0 AS interval_seconds, 0.004 AS typical,
        place
    FROM (SELECT *, CASE WHEN state <> 'ready' THEN 'See the engine''s own row.' END AS detail FROM work)
    UNION ALL
    SELECT t, make_timestamptz(t * 1000000 + 1500), 'device:nvidia', 'device', 'ok', NULL, 1.0, 0.003, 20 FROM tick
    UNION ALL
    SELECT t, make_timestamptz(t * 1000000 + 300), 'host', 'host', 'ok', NULL, 1.0, 0.0004, 21 FROM tick
    UNION ALL
    SELECT t, make_timestamptz(t * 1000000 + 90000), 'processes', 'host', 'ok', NULL, 2.0, 0.006, 22 FROM tick WHERE t % 2 = 0
    UNION ALL
    SELECT t, make_timestamptz(t * 1000000 + 400000), 'discovery', 'discovery', 'ok', NULL, 5.0, 0.02, 23 FROM tick WHERE t % 5 = 0
    UNION ALL
    SELECT t, make_timestamptz(t * 1000000 + 500000), 'store', 'store', 'ok', NULL, 10.0, 0.0001, 24 FROM tick WHERE t % 10 = 0
)
SELECT ts, getvariable('host_name') AS host, source_id, kind, state,
    round(typical * (0.7 + 0.6 * chance(source_id, t)), 6) AS duration_seconds,
    round(0.0002 + 0.0008 * chance(source_id || 'l', t), 6) AS lateness_seconds, interval_seconds, detail,
    'this collector' AS found_by
FROM source
ORDER BY t, place;
