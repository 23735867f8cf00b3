-- From when to when there are rows: of any level, and of each one that is kept.
WITH raw AS (
    SELECT min(ts) AS oldest, max(ts) AS newest FROM engine_sample
    UNION ALL SELECT min(ts), max(ts) FROM device_sample
    UNION ALL SELECT min(ts), max(ts) FROM host_sample
),
minute AS (
    SELECT min(first_ts) AS oldest FROM engine_minute
    UNION ALL SELECT min(first_ts) FROM device_minute
    UNION ALL SELECT min(first_ts) FROM host_minute
),
hour AS (
    SELECT min(first_ts) AS oldest, max(last_ts) AS newest FROM engine_hour
    UNION ALL SELECT min(first_ts), max(last_ts) FROM device_hour
    UNION ALL SELECT min(first_ts), max(last_ts) FROM host_hour
),
kept AS (
    SELECT (SELECT min(oldest) FROM raw) AS raw_oldest_ts, (SELECT min(oldest) FROM minute) AS minute_oldest_ts,
        (SELECT min(oldest) FROM hour) AS hour_oldest_ts, (SELECT max(newest) FROM raw) AS raw_newest_ts,
        (SELECT max(newest) FROM hour) AS hour_newest_ts
)
SELECT least(raw_oldest_ts, minute_oldest_ts, hour_oldest_ts) AS oldest_ts,
    coalesce(raw_newest_ts, hour_newest_ts) AS newest_ts, raw_oldest_ts, minute_oldest_ts, hour_oldest_ts
FROM kept
