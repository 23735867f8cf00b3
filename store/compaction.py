"""
Compaction: a past day of a table is written anew, sorted by engine or device, which about halves its bytes.

Samples of all engines and devices arrive interleaved, and columns compress badly while values of different ones
alternate. One transaction inserts the sorted rows, deletes the ones they were made of and moves `compacted` on. Rows
that come for such a day afterwards stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import duckdb

from store.rollup import BEGINNING, LOOKBACK, floor, state

DAY = timedelta(days=1)
# Only tables that gain by it: a histogram's rows repeat their time and sum, which sorting by bound would tear apart.
KEYS: Mapping[str, str] = MappingProxyType(
    {
        "engine_sample": "engine_id, epoch_id, monotonic_seconds",
        "device_sample": "device_id, rowid",
        "process_memory": "method, engine_id, device_id, pid, ts",
        "engine_minute": "engine_id, epoch_id, ts",
        "latency_minute": "engine_id, epoch_id, quantity, bounds, ts",
        "device_minute": "device_id, ts",
        "process_memory_minute": "method, engine_id, device_id, ts",
    }
)


def due(connection: duckdb.DuckDBPyConnection, table: str, now: datetime) -> datetime | None:
    """
    The oldest UTC day of a table that can be compacted; None: there is none, or the next one has to wait.

    A day waits until no rollup looks back into it, and is rolled up by the hour itself. Where a clock was set back
    over midnight, its rows of `device_sample` stay as they are until they are deleted, see `_interleaved`.
    """
    # S608: tables and keys are the constants above, in this and all statements of this module.
    reached = _reached(connection, table)
    end = floor(min(now - LOOKBACK, state(connection).hour_until or BEGINNING), DAY)
    oldest = connection.execute(
        f"SELECT min(ts) FROM {table} WHERE ts >= $reached AND ts < $end",  # noqa: S608
        {"reached": reached, "end": end},
    ).fetchall()[0][0]
    if not isinstance(oldest, datetime):
        return None
    day = floor(oldest.astimezone(UTC), DAY)
    return None if table == "device_sample" and _interleaved(connection, day) else day


def compact(connection: duckdb.DuckDBPyConnection, table: str, day: datetime) -> int:
    """Write the rows of one UTC day anew; returns how many. The caller has begun a transaction."""
    span = {"a": day, "b": day + DAY}
    where = "ts >= $a AND ts < $b"
    # Rows of a transaction that is not committed have row ids above those of all that are.
    (last,) = connection.execute(f"SELECT coalesce(max(rowid), -1) FROM {table} WHERE {where}", span).fetchall()[0]  # noqa: S608
    (added,) = connection.execute(
        f"INSERT INTO {table} SELECT * FROM {table} WHERE {where} ORDER BY {KEYS[table]}",  # noqa: S608
        span,
    ).fetchall()[0]
    (deleted,) = connection.execute(
        f"DELETE FROM {table} WHERE {where} AND rowid <= $last",  # noqa: S608
        {**span, "last": last},
    ).fetchall()[0]
    if added != deleted:
        raise duckdb.DataError(f"{added} rows of {table} were written anew where {deleted} are there")
    connection.execute("DELETE FROM compacted WHERE table_name = $table", {"table": table})
    connection.execute("INSERT INTO compacted VALUES ($table, $until)", {"table": table, "until": day + DAY})
    if table == "device_sample":
        # What is sorted now is no longer late; what is gone needs no note.
        connection.execute(
            f"DELETE FROM device_sample_late WHERE ({where}) OR ts < (SELECT min(ts) FROM device_sample)",  # noqa: S608
            span,
        )
    return int(added)


def _reached(connection: duckdb.DuckDBPyConnection, table: str) -> datetime:
    (reached,) = connection.execute(
        "SELECT max(until) FROM compacted WHERE table_name = $table", {"table": table}
    ).fetchall()[0]
    return reached.astimezone(UTC) if isinstance(reached, datetime) else BEGINNING


def _interleaved(connection: duckdb.DuckDBPyConnection, day: datetime) -> bool:
    """Whether rows of later days were written before the last one of this day: sorted, their order would be lost."""
    (found,) = connection.execute(
        "SELECT coalesce(max(rowid) FILTER (ts < $b) > min(rowid) FILTER (ts >= $b), false) "
        "FROM device_sample WHERE ts >= $a",
        {"a": day, "b": day + DAY},
    ).fetchall()[0]
    return bool(found)
