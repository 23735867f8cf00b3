"""How much room the store takes, how much is left, and what happens when none is."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from settings import StoreSettings
from store.archive import archive_folder, damage, files
from store.database import file_bytes, wal_bytes
from store.heartbeat import TIMED_TABLES
from store.model import DiskSample
from store.writer import MAX_QUEUED_ROWS, kept_for

# What a checkpoint of some minutes takes: with less, rows soon wait in memory.
FULL_BYTES = 16_000_000
GROWTH_OVER = timedelta(hours=24)
GROWTH_AT_LEAST = timedelta(hours=1)
RATE_OVER = timedelta(minutes=10)
RATE_AT_LEAST_SECONDS = 10.0


def measure(store_path: Path, ts: datetime, host: str) -> DiskSample:
    """The sizes at this moment, for a row of `disk_sample`."""
    try:
        usage = shutil.disk_usage(store_path.parent)
    except OSError:
        usage = None
    return DiskSample(
        ts=ts,
        host=host,
        file_bytes=file_bytes(store_path),
        wal_bytes=wal_bytes(store_path),
        archive_bytes=sum(file_bytes(path) for path in archive_folder(store_path).glob("*/*.parquet")),
        free_bytes=usage.free if usage else None,
        total_bytes=usage.total if usage else None,
    )


def report(cursor: duckdb.DuckDBPyConnection, store_path: Path, settings: StoreSettings) -> pa.Table:
    """The answer of the query `disk`, see `store.protocol`. One row."""
    now = datetime.now(UTC)
    sizes = measure(store_path, now, "")
    archived = files(cursor, store_path)
    problems = [problem for file in archived if (problem := damage(file, whole=False)) is not None]
    growth, over = _growth(cursor, now)
    rate = _rows_per_second(cursor, now)
    days = sizes.free_bytes / growth if growth and growth > 0 and sizes.free_bytes is not None else None
    state, detail = _judge(sizes.free_bytes, days, rate, settings)
    row: dict[str, Any] = {
        "folder": str(store_path.parent),
        "file_bytes": sizes.file_bytes,
        "wal_bytes": sizes.wal_bytes,
        "archive_on": settings.archive,
        "archive_bytes": sizes.archive_bytes,
        "archive_files": len(archived),
        "archive_oldest_day": min((str(file.day) for file in archived), default=None),
        "archive_problems": problems,
        "free_bytes": sizes.free_bytes,
        "total_bytes": sizes.total_bytes,
        "growth_bytes_per_day": growth,
        "growth_over_seconds": over,
        "days_until_full": days,
        "rows_per_second": rate,
        "memory_rows": MAX_QUEUED_ROWS,
        "memory_seconds": MAX_QUEUED_ROWS / rate if rate else None,
        "state": state,
        "detail": detail,
    }
    return pa.Table.from_pylist([row], schema=_SCHEMA)


def tables(cursor: duckdb.DuckDBPyConnection) -> pa.Table:
    """The answer of the query `disk_tables`: rows and, by the blocks that they lie in, bytes of each table."""
    names = [name for (name,) in cursor.sql("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()]
    # S608: the names are those of our own tables.
    counts = " UNION ALL ".join(
        f"SELECT '{name}' AS table_name, (SELECT count(*) FROM {name}) AS rows, "  # noqa: S608
        f"(SELECT count(DISTINCT block_id) FROM pragma_storage_info('{name}') WHERE block_id >= 0) AS blocks"
        for name in names
    )
    return cursor.sql(
        f"SELECT table_name, rows, blocks * (SELECT block_size FROM pragma_database_size() "  # noqa: S608
        f"WHERE database_name = current_database()) AS bytes_estimate FROM ({counts}) "
        "ORDER BY bytes_estimate DESC, rows DESC"
    ).to_arrow_table()


_SCHEMA = pa.schema(
    {
        "folder": pa.string(),
        "file_bytes": pa.int64(),
        "wal_bytes": pa.int64(),
        "archive_on": pa.bool_(),
        "archive_bytes": pa.int64(),
        "archive_files": pa.int64(),
        "archive_oldest_day": pa.string(),
        "archive_problems": pa.list_(pa.string()),
        "free_bytes": pa.int64(),
        "total_bytes": pa.int64(),
        "growth_bytes_per_day": pa.float64(),
        "growth_over_seconds": pa.float64(),
        "days_until_full": pa.float64(),
        "rows_per_second": pa.float64(),
        "memory_rows": pa.int64(),
        "memory_seconds": pa.float64(),
        "state": pa.string(),
        "detail": pa.string(),
    }
)


def _growth(cursor: duckdb.DuckDBPyConnection, now: datetime) -> tuple[float | None, float | None]:
    """
    Bytes a day that the store grew by in the last day, and the seconds that this was read from.

    The slope of a line through all samples: a file grows in steps, and a checkpoint empties its log. None until
    there are samples over an hour.
    """
    slope, seconds = cursor.execute(
        "SELECT regr_slope(file_bytes + wal_bytes + archive_bytes, epoch(ts)), epoch(max(ts)) - epoch(min(ts)) "
        "FROM disk_sample WHERE ts >= $since AND ts <= $now",
        {"since": now - GROWTH_OVER, "now": now},
    ).fetchall()[0]
    if slope is None or seconds < GROWTH_AT_LEAST.total_seconds():
        return None, None
    return float(slope) * 86_400, float(seconds)


def _rows_per_second(cursor: duckdb.DuckDBPyConnection, now: datetime) -> float | None:
    """Rows that were sampled in the last ten minutes, by second; None when nothing was."""
    # S608: the names are those of our own tables.
    counted = " UNION ALL ".join(
        f"SELECT count(*) AS rows, min(ts) AS low, max(ts) AS high FROM {table} WHERE ts >= $since AND ts <= $now"  # noqa: S608
        for table in TIMED_TABLES
    )
    rows, seconds = cursor.execute(
        f"SELECT sum(rows), epoch(max(high)) - epoch(min(low)) FROM ({counted})",  # noqa: S608
        {"since": now - RATE_OVER, "now": now},
    ).fetchall()[0]
    if not rows or seconds is None or seconds < RATE_AT_LEAST_SECONDS:
        return None
    return float(rows) / float(seconds)


def _judge(
    free_bytes: int | None, days: float | None, rows_per_second: float | None, settings: StoreSettings
) -> tuple[str, str]:
    """`ok`, `low` or `full` with what that means; `unknown` where the disk does not tell."""
    then = f"sampling goes on in memory {kept_for(rows_per_second)}, then the oldest rows are dropped and counted."
    remedy = "Free some disk space, keep raw rows for fewer days, or move the data folder (ENGINE_ROOM_DATA)."
    if free_bytes is None:
        return "unknown", "The system does not tell how much room the disk has."
    if free_bytes < FULL_BYTES:
        return "full", f"The disk is full: {then} {remedy}"
    reasons: Sequence[str] = [
        *([f"{_amount(free_bytes)} are left"] if free_bytes < settings.low_free_bytes else []),
        *(
            [f"at the present growth it is full in {days:.1f} days"]
            if days is not None and days < settings.low_days
            else []
        ),
    ]
    if reasons:
        return "low", f"The disk is nearly full: {' and '.join(reasons)}. When it is, {then} {remedy}"
    return "ok", f"When the disk is full, {then}"


def _amount(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
