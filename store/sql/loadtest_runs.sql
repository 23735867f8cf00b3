-- Load tests and imported results: the row written last of each, newest run first (ids sort by time).
FROM loadtest_run
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY rowid DESC) = 1
ORDER BY run_id DESC
LIMIT $limit
