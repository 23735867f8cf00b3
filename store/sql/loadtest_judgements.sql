-- What one run says against itself or in its own favour: about the run first, then by stage.
FROM loadtest_judgement
WHERE run_id = $run_id
ORDER BY stage_id NULLS FIRST, rowid
