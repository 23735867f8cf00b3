-- One saved report, as it was written last.
FROM report
WHERE report_id = $report_id
QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY rowid DESC) = 1
