"""
The daily Parquet archive: raw rows that retention is about to delete, in files that the same queries read.

One file a table and UTC day, `<data>/archive/<table>/<day>.parquet`, and a row in `archive_file` that is
committed in the transaction that deletes the rows from the store. So a row is either in the store or in a
file that `archive_file` names, whatever a crash does; a file without such a row is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import duckdb

from store.protocol import StoreError

FOLDER = "archive"
# Rates and histograms begin at samples before the range: see 0002_rates.sql.
LOOKBACK = timedelta(seconds=120)
_ONE_DAY = timedelta(days=1)
# Digests by path, size and time of change: a file is read as a whole once, not with every query.
_digests: dict[tuple[Path, int, int], str] = {}


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One archived file as `archive_file` describes it."""

    table: str
    day: date
    path: Path
    rows: int
    file_bytes: int
    sha256: str


def archive_folder(store_path: Path) -> Path:
    """The archive's folder beside the DuckDB file."""
    return store_path.parent / FOLDER


def keep(cursor: duckdb.DuckDBPyConnection, store_path: Path, table: str, day: date) -> int:
    """
    Write the rows that `table` holds of one UTC day to the archive. Returns how many.

    Call it inside the transaction that deletes those rows afterwards, and delete only when it returned. Rows of
    a day that was archived before (the clock was set back) go to a second file. Raises `StoreError` when the
    file cannot be written, or does not hold what the table holds; no file is left then.
    """
    begin = datetime.combine(day, time(), UTC)
    span = {"start": begin, "end": begin + _ONE_DAY}
    where = "ts >= $start AND ts < $end"
    # S608: the table is one of our own, the path is quoted; times are bound.
    (expected,) = cursor.execute(f"SELECT count(*), min(ts), max(ts) FROM {table} WHERE {where}", span).fetchall()  # noqa: S608
    if expected[0] == 0:
        return 0
    earlier = cursor.execute(
        "SELECT count(*) FROM archive_file WHERE table_name = $table AND day = $day", {"table": table, "day": day}
    ).fetchall()[0][0]
    name = f"{day}.parquet" if not earlier else f"{day}.{earlier + 1}.parquet"
    target = archive_folder(store_path) / table / name
    part = target.with_name(name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        cursor.execute(
            f"COPY (SELECT * FROM {table} WHERE {where}) TO {_quoted(part)} "  # noqa: S608
            "(FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)",
            span,
        )
        (found,) = cursor.execute(f"SELECT count(*), min(ts), max(ts) FROM read_parquet({_quoted(part)})").fetchall()  # noqa: S608
        if found != expected:
            raise StoreError(f"{part} holds {found[0]} rows of {table} where the store holds {expected[0]}")
        _synchronise(part)
        written = (part.stat().st_size, _digest(part))
        part.replace(target)
        _synchronise(target.parent)
    except (OSError, duckdb.IOException) as error:
        raise StoreError(
            f"the archive file {target} cannot be written ({error}). Raw rows stay in the store until it can: free "
            "some disk space, or switch the archive off (ENGINE_ROOM_STORE__ARCHIVE=false)"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    cursor.execute(
        "INSERT INTO archive_file VALUES ($table, $day, $name, $rows, $first, $last, $bytes, $sha256, now())",
        {
            "table": table,
            "day": day,
            "name": f"{table}/{name}",
            "rows": expected[0],
            "first": expected[1],
            "last": expected[2],
            "bytes": written[0],
            "sha256": written[1],
        },
    )
    return int(expected[0])


@contextlib.contextmanager
def uncovered(
    cursor: duckdb.DuckDBPyConnection, store_path: Path, start: datetime, end: datetime
) -> Iterator[list[str]]:
    """
    Let what this cursor reads inside see the archived rows of a range as if they were in the store.

    A temporary view of the table's name stands before the table, also inside views and macros. All is read in
    one transaction, so that a day that moves to the archive meanwhile is seen once. Gives one sentence for
    each file that is missing or damaged; its rows are left out.
    """
    cursor.begin()
    try:
        yield _uncover(cursor, store_path, start, end)
    finally:
        with contextlib.suppress(duckdb.Error):
            cursor.rollback()  # takes the views away


def _uncover(cursor: duckdb.DuckDBPyConnection, store_path: Path, start: datetime, end: datetime) -> list[str]:
    notes: list[str] = []
    readable: dict[str, list[Path]] = {}
    for file in files(cursor, store_path, start - LOOKBACK, end):
        problem = damage(file)
        if problem is None:
            readable.setdefault(file.table, []).append(file.path)
        else:
            notes.append(problem)
    database = cursor.execute("SELECT current_database()").fetchall()[0][0]
    for table, paths in readable.items():
        listed = ", ".join(_quoted(path) for path in paths)
        cursor.execute(
            f'CREATE OR REPLACE TEMP VIEW "{table}" AS '
            f"FROM read_parquet([{listed}], union_by_name = true) "
            f'UNION ALL BY NAME FROM "{database}".main."{table}"'
        )
    return notes


def covers(cursor: duckdb.DuckDBPyConnection, table: str, start: datetime, end: datetime) -> bool:
    """
    Whether a table has archived rows of every UTC day of a range.

    The day on which the archive was switched on may lack its first hours: a range that begins in them is not covered.
    """
    first, last = start.astimezone(UTC).date(), (end.astimezone(UTC) - timedelta(microseconds=1)).date()
    ((days, whole),) = cursor.execute(
        "SELECT count(DISTINCT day) FILTER (day BETWEEN $first AND $last), coalesce(min(oldest_ts) <= $start, false) "
        "FROM archive_file WHERE table_name = $table",
        {"table": table, "first": first, "last": last, "start": start},
    ).fetchall()
    return bool(whole) and int(days) == (last - first).days + 1


def files(
    cursor: duckdb.DuckDBPyConnection, store_path: Path, start: datetime | None = None, end: datetime | None = None
) -> list[ArchiveFile]:
    """The archived files that hold rows of a range (of all time without one), oldest first."""
    folder = archive_folder(store_path)
    found = cursor.execute(
        "SELECT table_name, day, file, row_count, file_bytes, sha256 FROM archive_file "
        "WHERE ($start IS NULL OR newest_ts >= $start) AND ($end IS NULL OR oldest_ts <= $end) "
        "ORDER BY table_name, day, written",
        {"start": start, "end": end},
    ).fetchall()
    return [ArchiveFile(table, day, folder / name, *rest) for table, day, name, *rest in found]


def damage(file: ArchiveFile, *, whole: bool = True) -> str | None:
    """
    Why a file cannot be used, with what to do; None for one that holds what was written.

    `whole` compares its content, once for each change of the file; else only that it is there in its size, and what
    was found when its content was last compared.
    """
    try:
        found = file.path.stat()
        version = (file.path, found.st_size, found.st_mtime_ns)
        if whole and version not in _digests and found.st_size == file.file_bytes:
            _digests[version] = _digest(file.path)
        intact = found.st_size == file.file_bytes and _digests.get(version, file.sha256) == file.sha256
    except OSError as error:
        what = f"cannot be read ({error.strerror or error})"
    else:
        if intact:
            return None
        what = "is damaged: it is not what was written"
    return (
        f"The archive file {FOLDER}/{file.table}/{file.path.name} {what}. Its {file.rows} rows of {file.table} of "
        f"{file.day} are left out; bring the file back from a copy."
    )


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _synchronise(path: Path) -> None:
    """Have a file or folder on the disk before anything relies on it."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
