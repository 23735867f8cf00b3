"""
Compaction: past days of a table are written anew, sorted by engine or device, which about halves their bytes.

Rows of all engines and devices arrive interleaved, and columns compress badly while values of different ones
alternate. One transaction inserts the sorted rows, deletes the ones they were made of and moves `compacted` on. Rows
that come for such a time afterwards stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import duckdb

from store.rollup import BEGINNING, floor, state

# Few samples come later than this.
SETTLED = timedelta(hours=2)
# How much is sorted at once: enough rows of each engine to fill DuckDB's vectors of 2048, few enough to be quick.
OF_SAMPLES, OF_MINUTES = timedelta(hours=6), timedelta(days=5)
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


def step(table: str) -> timedelta:
    """How much of a table is sorted at once."""
    return OF_MINUTES if table.endswith("_minute") else OF_SAMPLES


def due(connection: duckdb.DuckDBPyConnection, table: str, now: datetime) -> datetime | None:
    """
    Beginning of the oldest step of a table that can be compacted; None: there is none, or the next one has to wait.

    A step waits until it is over and rolled up by the hour. Where a clock was set back over its end, the
    rows of `device_sample` stay as they are until they are deleted, see `_interleaved`.
    """
    # S608: tables and keys are the constants above, in this and all statements of this module.
    reached = _reached(connection, table)
    end = floor(min(now - SETTLED, state(connection).hour_until or BEGINNING), step(table))
    oldest = connection.execute(
        f"SELECT min(ts) FROM {table} WHERE ts >= $reached AND ts < $end",  # noqa: S608
        {"reached": reached, "end": end},
    ).fetchall()[0][0]
    if not isinstance(oldest, datetime):
        return None
    start = floor(oldest.astimezone(UTC), step(table))
    return None if table == "device_sample" and _interleaved(connection, start) else start


def compact(connection: duckdb.DuckDBPyConnection, table: str, start: datetime) -> int:
    """Write the rows of one step anew; returns how many. The caller has begun a transaction."""
    span = {"a": start, "b": start + step(table)}
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
    connection.execute("INSERT INTO compacted VALUES ($table, $until)", {"table": table, "until": span["b"]})
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


def _interleaved(connection: duckdb.DuckDBPyConnection, start: datetime) -> bool:
    """Whether later rows were written before the last one of this step: sorted, their order would be lost."""
    (found,) = connection.execute(
        "SELECT coalesce(max(rowid) FILTER (ts < $b) > min(rowid) FILTER (ts >= $b), false) "
        "FROM device_sample WHERE ts >= $a",
        {"a": start, "b": start + step("device_sample")},
    ).fetchall()[0]
    return bool(found)
