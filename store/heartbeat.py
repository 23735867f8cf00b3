"""
What tells a collector that rows were lost: a small file beside the DuckDB file.

DuckDB drops everything behind a damaged place of its write-ahead log without a word. So the newest
committed time is kept outside it, and the log of an unclean stop is set aside before it is replayed.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import structlog

from store.database import wal_bytes, wal_path
from store.model import ROW_TYPES, Event

_LOG = structlog.get_logger(__name__)
_KEPT_LOGS = 2
# What was sampled on this host. Load tests and reports are left out: an imported one may be of any time.
TIMED_TABLES = tuple(
    row.table
    for row in ROW_TYPES
    if row.__module__ == "store.model" and any(field.name == "ts" for field in fields(row))
)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The newest time of any committed row, and whether the writer has stopped in good order since."""

    newest: datetime
    closed: bool


def heartbeat_path(path: Path) -> Path:
    """The file beside the DuckDB file `path`."""
    return path.with_suffix(".heartbeat.json")


def write_heartbeat(path: Path, heartbeat: Heartbeat) -> None:
    """Replace the heartbeat of the DuckDB file `path` at once. Raises `OSError`."""
    target = heartbeat_path(path)
    fresh = target.with_name(target.name + ".new")
    fresh.write_text(json.dumps({"newest": heartbeat.newest.isoformat(), "closed": heartbeat.closed}), encoding="utf-8")
    os.replace(fresh, target)  # noqa: PTH105 - one atomic call


def read_heartbeat(path: Path) -> Heartbeat | None:
    """The heartbeat of the DuckDB file `path`; None when there is none that can be read."""
    try:
        content = json.loads(heartbeat_path(path).read_text(encoding="utf-8"))
        return Heartbeat(datetime.fromisoformat(content["newest"]), bool(content["closed"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("heartbeat_unreadable", path=str(heartbeat_path(path)), error=str(error))
        return None


def keep_wal(path: Path) -> Path | None:
    """
    Copy the write-ahead log of an unclean stop aside, keeping the two newest copies.

    Returns the copy, or None when there is no log. A copy that cannot be made is logged, not raised:
    opening goes on without it.
    """
    if wal_bytes(path) == 0:
        return None
    wal = wal_path(path)
    copy = path.with_name(f"{path.name}.wal.kept-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    try:
        shutil.copy2(wal, copy)
    except OSError as error:
        copy.unlink(missing_ok=True)
        _LOG.warning("wal_not_kept", path=str(wal), error=str(error))
        return None
    for old in sorted(path.parent.glob(f"{path.name}.wal.kept-*"))[:-_KEPT_LOGS]:
        old.unlink(missing_ok=True)
    return copy


def newest_row(connection: duckdb.DuckDBPyConnection) -> datetime | None:
    """The newest time of any row in the file."""
    parts = " UNION ALL ".join(f"SELECT max(ts) AS ts FROM {table}" for table in TIMED_TABLES)  # noqa: S608 - own names
    newest = connection.execute(f"SELECT max(ts) FROM ({parts})").fetchall()[0][0]  # noqa: S608 - own names
    return newest.astimezone(UTC) if isinstance(newest, datetime) else None


def find_gap(
    path: Path, connection: duckdb.DuckDBPyConnection, host: str, heartbeat: Heartbeat | None, kept: Path | None
) -> Event | None:
    """A `store_gap` event when rows that were committed before an unclean stop are no longer in the file."""
    if heartbeat is None or heartbeat.closed:
        return None
    newest = newest_row(connection)
    if newest is not None and newest >= heartbeat.newest:
        return None
    found = newest.isoformat() if newest else "none"
    text = (
        f"Rows are missing: the last stop was unclean; rows up to {heartbeat.newest.isoformat()} had been committed, "
        f"the newest one found is {found}. "
        + (f"The write-ahead log as it was is kept in {kept}." if kept else "No write-ahead log was left.")
    )
    _LOG.warning("store_gap", path=str(path), committed=heartbeat.newest.isoformat(), found=found, kept=str(kept))
    return Event(
        ts=datetime.now(UTC),
        host=host,
        engine_id=None,
        epoch_id=None,
        device_id=None,
        kind="store_gap",
        text=text,
        details=json.dumps({"committed": heartbeat.newest.isoformat(), "found": found}),
    )
