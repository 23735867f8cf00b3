-- What every table, view and series holds, and each of its columns: the comments of the schema. Columns that repeat
-- those of another table have its comments; what is computed for a chart is told here.
WITH repeated(table_name, of) AS (
    VALUES ('engine_latest', 'engine'), ('epoch_latest', 'epoch'), ('device_latest', 'device'),
        ('engine_hour', 'engine_minute'), ('latency_hour', 'latency_minute'), ('device_hour', 'device_minute'),
        ('host_hour', 'host_minute'), ('process_memory_hour', 'process_memory_minute')
),
described(table_name, column_name, comment) AS (
    VALUES
        ('schema_version', NULL, 'the migrations that this file has been through'),
        ('schema_version', 'version', 'number of the migration'),
        ('schema_version', 'name', 'what it brought'),
        ('schema_version', 'applied', 'when it was done, UTC'),
        ('engine_latest', 'given_label', 'label as it was found or configured; two engines may share it'),
        ('epoch_latest', 'sequence', 'rises with the order in which epochs were first written'),
        ('engine_rate', 'ts', 'time of the later of the two samples, UTC'),
        ('engine_rate', 'host', 'name of the host that the collector runs on'),
        ('engine_rate', 'engine_id', 'engine that the row is about; it keeps its identity over restarts'),
        ('engine_rate', 'epoch_id', 'one life of the engine''s process'),
        ('engine_rate', 'quantity', 'the counter, such as generation_tokens, prompt_tokens, requests_finished'),
        ('engine_rate', 'increase', 'by how much it grew between the two samples: tokens, requests, events or seconds'),
        ('engine_rate', 'window_seconds', 'elapsed seconds between the two samples'),
        ('engine_rate', 'per_second', 'increase over window_seconds; NULL: the counter decreased'),
        ('engine_rate', 'source', 'settled: the counter that becomes exact when requests end; live: one that moves meanwhile')
),
series(table_name, place, column_name, type, spread, comment) AS (
    VALUES
        ('engine_series', 0, NULL, NULL, false, 'throughput and load of each engine, as charts show them; a row of NULLs where sampling had a gap'),
        ('engine_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('engine_series', 2, 'engine_id', 'VARCHAR', false, 'engine that the row is about; it keeps its identity over restarts'),
        ('engine_series', 3, 'label', 'VARCHAR', false, 'name that a person recognises; unique'),
        ('engine_series', 4, 'kind', 'VARCHAR', false, 'kind of engine, such as vllm or llama.cpp'),
        ('engine_series', 5, 'state', 'VARCHAR', false, 'state of the last sample of the bucket'),
        ('engine_series', 6, 'generation_tokens_per_second', 'DOUBLE', true, 'output tokens per second: increase over elapsed time'),
        ('engine_series', 7, 'prompt_tokens_per_second', 'DOUBLE', true, 'prompt tokens per second that were prefilled: increase over elapsed time; those from a prefix cache are not in it'),
        ('engine_series', 8, 'requests_running', 'DOUBLE', true, 'requests that the engine computes'),
        ('engine_series', 9, 'requests_waiting', 'DOUBLE', true, 'requests accepted but not yet started'),
        ('engine_series', 10, 'kv_used_fraction', 'DOUBLE', true, '0..1, share of the KV cache held by running requests'),
        ('engine_series', 11, 'generation_source', 'VARCHAR', false, 'settled: from the counter that becomes exact when requests end; live: in part from one that moves meanwhile'),
        ('engine_series', 12, 'samples', 'BIGINT', false, 'samples in the bucket; 0: sampling had a gap'),
        ('engine_memory_series', 0, NULL, NULL, false, 'host memory of the process tree of each engine, as charts show it; a row of NULLs where sampling had a gap'),
        ('engine_memory_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('engine_memory_series', 2, 'engine_id', 'VARCHAR', false, 'engine that the row is about; it keeps its identity over restarts'),
        ('engine_memory_series', 3, 'label', 'VARCHAR', false, 'name that a person recognises; unique'),
        ('engine_memory_series', 4, 'method', 'VARCHAR', false, 'how it was measured; rss: resident set, shared pages included'),
        ('engine_memory_series', 5, 'memory_bytes', 'DOUBLE', true, 'bytes held in host memory'),
        ('engine_memory_series', 6, 'cpu_cores', 'DOUBLE', false, 'CPU seconds per second'),
        ('engine_memory_series', 7, 'process_count', 'DOUBLE', false, 'processes in the tree'),
        ('device_series', 0, NULL, NULL, false, 'what each device did, as charts show it; a row of NULLs where sampling had a gap'),
        ('device_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('device_series', 2, 'device_id', 'VARCHAR', false, 'the driver''s own unique name of the device'),
        ('device_series', 3, 'index', 'BIGINT', false, 'the driver''s number of the device'),
        ('device_series', 4, 'name', 'VARCHAR', false, 'product name'),
        ('device_series', 5, 'memory_total_bytes', 'BIGINT', false, 'bytes'),
        ('device_series', 6, 'power_limit_watts', 'DOUBLE', false, 'watts'),
        ('device_series', 7, 'memory_used_bytes', 'DOUBLE', true, 'bytes in use, the driver''s own reserve included'),
        ('device_series', 8, 'utilisation_fraction', 'DOUBLE', true, '0..1, share of time in which a kernel ran'),
        ('device_series', 9, 'power_watts', 'DOUBLE', true, 'watts'),
        ('device_series', 10, 'temperature_celsius', 'DOUBLE', true, 'degrees Celsius'),
        ('device_series', 11, 'sm_clock_hertz', 'DOUBLE', true, 'hertz'),
        ('device_memory_series', 0, NULL, NULL, false, 'who holds the memory of each device, as charts show it; all parts of a device add up to what is used; a row of NULLs where sampling had a gap'),
        ('device_memory_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('device_memory_series', 2, 'device_id', 'VARCHAR', false, 'the driver''s own unique name of the device'),
        ('device_memory_series', 3, 'part', 'VARCHAR', false, 'engine | other processes | driver and unattributed | counted twice, below 0, where processes share memory'),
        ('device_memory_series', 4, 'engine_id', 'VARCHAR', false, 'engine that holds the part; NULL: no engine'),
        ('device_memory_series', 5, 'label', 'VARCHAR', false, 'name that a person recognises; unique'),
        ('device_memory_series', 6, 'method', 'VARCHAR', false, 'how it was measured; remainder: what is used less all that is known; none: the driver does not tell'),
        ('device_memory_series', 7, 'memory_bytes', 'DOUBLE', false, 'bytes held on the device'),
        ('host_memory_series', 0, NULL, NULL, false, 'who holds the memory of the host, as charts show it; all parts add up to what is installed; a row of NULLs where sampling had a gap'),
        ('host_memory_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('host_memory_series', 2, 'host', 'VARCHAR', false, 'name of the host that the collector runs on'),
        ('host_memory_series', 3, 'part', 'VARCHAR', false, 'engine | other used | available | counted twice, below 0, where processes share memory'),
        ('host_memory_series', 4, 'engine_id', 'VARCHAR', false, 'engine that holds the part; NULL: no engine'),
        ('host_memory_series', 5, 'label', 'VARCHAR', false, 'name that a person recognises; unique'),
        ('host_memory_series', 6, 'method', 'VARCHAR', false, 'how it was measured; rss: resident set, shared pages included'),
        ('host_memory_series', 7, 'memory_bytes', 'DOUBLE', false, 'bytes'),
        ('host_series', 0, NULL, NULL, false, 'what the host did, as charts show it; a row of NULLs where sampling had a gap'),
        ('host_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('host_series', 2, 'host', 'VARCHAR', false, 'name of the host that the collector runs on'),
        ('host_series', 3, 'cpu_count', 'BIGINT', false, 'logical cores'),
        ('host_series', 4, 'memory_total_bytes', 'BIGINT', false, 'bytes'),
        ('host_series', 5, 'swap_total_bytes', 'BIGINT', false, 'bytes'),
        ('host_series', 6, 'cpu_fraction', 'DOUBLE', true, '0..1, share of all cores that was busy'),
        ('host_series', 7, 'memory_used_bytes', 'DOUBLE', true, 'bytes'),
        ('host_series', 8, 'swap_used_bytes', 'DOUBLE', true, 'bytes'),
        ('host_series', 9, 'load_1m', 'DOUBLE', true, 'load average of one minute'),
        ('latency_series', 0, NULL, NULL, false, 'latencies that each engine measured itself, as charts show them: its histograms, merged, never averaged; a row of NULLs where sampling had a gap'),
        ('latency_series', 1, 'ts', 'TIMESTAMP WITH TIME ZONE', false, 'time of the sample, or beginning of the bucket of samples, UTC'),
        ('latency_series', 2, 'engine_id', 'VARCHAR', false, 'engine that the row is about; it keeps its identity over restarts'),
        ('latency_series', 3, 'label', 'VARCHAR', false, 'name that a person recognises; unique'),
        ('latency_series', 4, 'quantity', 'VARCHAR', false, 'ttft_seconds, itl_seconds, tpot_seconds, e2e_seconds, queue_seconds'),
        ('latency_series', 5, 'count', 'DOUBLE', false, 'observations; 0: it was sampled, and there were none'),
        ('latency_series', 6, 'mean_seconds', 'DOUBLE', false, 'seconds, mean of the observations'),
        ('latency_series', 7, 'p50_seconds', 'DOUBLE', false, 'seconds, 50th percentile as estimated within its bucket of the histogram'),
        ('latency_series', 8, 'p50_low_seconds', 'DOUBLE', false, 'seconds, lower bound of that bucket'),
        ('latency_series', 9, 'p50_high_seconds', 'DOUBLE', false, 'seconds, upper bound of that bucket; NULL: it has none'),
        ('latency_series', 10, 'p95_seconds', 'DOUBLE', false, 'seconds, 95th percentile as estimated within its bucket of the histogram'),
        ('latency_series', 11, 'p95_low_seconds', 'DOUBLE', false, 'seconds, lower bound of that bucket'),
        ('latency_series', 12, 'p95_high_seconds', 'DOUBLE', false, 'seconds, upper bound of that bucket; NULL: it has none'),
        ('latency_series', 13, 'p99_seconds', 'DOUBLE', false, 'seconds, 99th percentile as estimated within its bucket of the histogram'),
        ('latency_series', 14, 'p99_low_seconds', 'DOUBLE', false, 'seconds, lower bound of that bucket'),
        ('latency_series', 15, 'p99_high_seconds', 'DOUBLE', false, 'seconds, upper bound of that bucket; NULL: it has none')
),
stored AS (
    SELECT table_name, 0 AS place, NULL AS column_name, 'table' AS type, comment FROM duckdb_tables()
    WHERE NOT internal AND database_name = current_database() AND NOT temporary
    UNION ALL
    SELECT view_name, 0, NULL, 'view', comment FROM duckdb_views()
    WHERE NOT internal AND database_name = current_database() AND NOT temporary
    UNION ALL
    SELECT table_name, column_index, column_name, data_type, comment FROM duckdb_columns()
    WHERE NOT internal AND database_name = current_database()
)
SELECT table_name, column_name, type, comment
FROM (
    SELECT s.table_name, s.place::DOUBLE AS place, s.column_name, s.type,
        coalesce(s.comment, d.comment, o.comment) AS comment
    FROM stored AS s
    LEFT JOIN described AS d ON d.table_name = s.table_name AND d.column_name IS NOT DISTINCT FROM s.column_name
    LEFT JOIN repeated AS r ON r.table_name = s.table_name
    LEFT JOIN stored AS o ON o.table_name = r.of AND o.column_name = s.column_name
    UNION ALL
    SELECT table_name, place, column_name, coalesce(type, 'series'),
        CASE WHEN spread THEN comment || '; mean of the bucket' ELSE comment END
    FROM series
    UNION ALL
    SELECT table_name, place + step, column_name || suffix, type, comment || words
    FROM series, (VALUES (0.1, '_min', '; the least of the bucket'), (0.2, '_max', '; the greatest of the bucket'))
        AS ends(step, suffix, words)
    WHERE spread
)
ORDER BY table_name, place
