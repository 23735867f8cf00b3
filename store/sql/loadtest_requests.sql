-- The requests of one run, or of one of its stages, in the order in which they were sent.
FROM loadtest_request
WHERE run_id = $run_id AND ($stage_id IS NULL OR stage_id = $stage_id)
ORDER BY stage_id, request
