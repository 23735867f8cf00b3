-- The stages of one run, the row written last of each.
FROM loadtest_stage
WHERE run_id = $run_id
QUALIFY row_number() OVER (PARTITION BY stage_id ORDER BY rowid DESC) = 1
ORDER BY stage_id
