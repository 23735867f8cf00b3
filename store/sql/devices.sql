-- Each device with its newest sample of the last 8 days.
WITH newest AS (
    SELECT device_id, max(ts) AS ts FROM device_sample
    WHERE ts > $at - INTERVAL 8 DAY AND ts <= $at
    GROUP BY device_id
),
sample AS (
    SELECT s.* FROM device_sample AS s JOIN newest AS n ON s.device_id = n.device_id AND s.ts = n.ts
    WHERE s.ts > $at - INTERVAL 8 DAY AND s.ts <= $at
    QUALIFY row_number() OVER (PARTITION BY s.device_id) = 1
)
SELECT d.device_id, d.vendor, d."index", d.name,
    coalesce(s.memory_total_bytes, d.memory_total_bytes) AS memory_total_bytes, d.driver_version,
    s.* EXCLUDE (device_id, memory_total_bytes)
FROM device_latest AS d LEFT JOIN sample AS s ON s.device_id = d.device_id
ORDER BY d.vendor, d."index", d.device_id
