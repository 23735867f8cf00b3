-- Which raw rows lie in Parquet files, and how much room the store and its disk have.

-- A row of archive_file is written in the transaction that deletes the rows from their table.
CREATE TABLE archive_file (
    table_name VARCHAR NOT NULL,
    day DATE NOT NULL,
    file VARCHAR NOT NULL,
    row_count BIGINT NOT NULL,
    oldest_ts TIMESTAMPTZ NOT NULL,
    newest_ts TIMESTAMPTZ NOT NULL,
    file_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    written TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE archive_file IS 'Parquet files of raw rows that retention deleted, in the folder archive beside the store';
COMMENT ON COLUMN archive_file.table_name IS 'table that the rows were in';
COMMENT ON COLUMN archive_file.day IS 'UTC day of the rows';
COMMENT ON COLUMN archive_file.file IS 'path below the archive folder';
COMMENT ON COLUMN archive_file.row_count IS 'rows in the file';
COMMENT ON COLUMN archive_file.oldest_ts IS 'oldest ts of its rows, UTC';
COMMENT ON COLUMN archive_file.newest_ts IS 'newest ts of its rows, UTC';
COMMENT ON COLUMN archive_file.file_bytes IS 'size of the file in bytes';
COMMENT ON COLUMN archive_file.sha256 IS 'digest of the file; one that does not match is not read';
COMMENT ON COLUMN archive_file.written IS 'when the file was written, UTC';

CREATE TABLE disk_sample (
    ts TIMESTAMPTZ NOT NULL,
    host VARCHAR NOT NULL,
    file_bytes BIGINT NOT NULL,
    wal_bytes BIGINT NOT NULL,
    archive_bytes BIGINT NOT NULL,
    free_bytes BIGINT,
    total_bytes BIGINT
);
COMMENT ON TABLE disk_sample IS 'size of the store and room on its disk, every five minutes';
COMMENT ON COLUMN disk_sample.ts IS 'time of the observation, UTC';
COMMENT ON COLUMN disk_sample.host IS 'name of the host that the collector runs on';
COMMENT ON COLUMN disk_sample.file_bytes IS 'size of the DuckDB file';
COMMENT ON COLUMN disk_sample.wal_bytes IS 'size of its write-ahead log';
COMMENT ON COLUMN disk_sample.archive_bytes IS 'size of the Parquet archive';
COMMENT ON COLUMN disk_sample.free_bytes IS 'bytes of the disk that this user may still fill';
COMMENT ON COLUMN disk_sample.total_bytes IS 'size of the disk';
