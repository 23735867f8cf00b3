gap AS (
    SELECT engine_id, chart_gap(last_ts, lead(first_ts) OVER (PARTITION BY engine_id ORDER BY bucket_ts), $gap_seconds)
        AS bucket_ts, 0::BIGINT AS samples
    FROM point
),
line AS (
    FROM point UNION ALL BY NAME (FROM gap WHERE bucket_ts IS NOT NULL)
)
SELECT p.bucket_ts AS ts, p.engine_id, e.label, e.kind, p.state,
    p.generation_tokens_per_second, p.generation_tokens_per_second_min, p.generation_tokens_per_second_max,
    p.prompt_tokens_per_second, p.prompt_tokens_per_second_min, p.prompt_tokens_per_second_max,
    p.requests_running, p.requests_running_min, p.requests_running_max,
    p.requests_waiting, p.requests_waiting_min, p.requests_waiting_max,
    p.kv_used_fraction, p.kv_used_fraction_min, p.kv_used_fraction_max,
    p.generation_source, p.samples
FROM line AS p LEFT JOIN engine_latest AS e USING (engine_id)
ORDER BY p.engine_id, p.bucket_ts
