-- What the engines and devices used during the stages of one run; the row without a device is the host's.
FROM loadtest_resource
WHERE run_id = $run_id
ORDER BY stage_id, engine_id, device_id NULLS FIRST
