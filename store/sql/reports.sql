-- Saved reports: the row written last of each, the newest first.
FROM report
QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY rowid DESC) = 1
ORDER BY rowid DESC
