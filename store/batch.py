"""Rows of many types into their tables in one transaction, and finding those that do not fit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import duckdb
import structlog

from store.heartbeat import TIMED_TABLES
from store.model import ROW_TYPES, DeviceSample, Row
from store.rollup import SAMPLES, note_late

_LOG = structlog.get_logger(__name__)

# What comes of a row that a table cannot hold, as opposed to a disk that cannot take it.
ROW_FAULTS = (
    duckdb.ConversionException,
    duckdb.ConstraintException,
    duckdb.InvalidInputException,
    duckdb.NotImplementedException,
    duckdb.OutOfRangeException,
    duckdb.TypeMismatchException,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
)
_VALUES: dict[type[Row], Callable[[Row], tuple[Any, ...]]] = {
    row: attrgetter(*(field.name for field in fields(row))) for row in ROW_TYPES
}
_TIMED = frozenset(row for row in ROW_TYPES if row.table in TIMED_TABLES)
_ROLLED = frozenset(row for row in ROW_TYPES if row.table in SAMPLES)
_time: Callable[[Row], datetime] = attrgetter("ts")


@dataclass(frozen=True, slots=True)
class Sorted:
    """A batch, split into rows that their tables hold and rows that they do not, with the last reason."""

    good: list[Row]
    rejected: list[Row]
    reason: str | None = None


def write(connection: duckdb.DuckDBPyConnection, batch: Sequence[Row], rolled_until: datetime | None = None) -> None:
    """
    Commit all rows in one transaction, or none. Raises one of `ROW_FAULTS`, or `duckdb.Error`.

    Minutes before `rolled_until` that get samples are noted, so that they are rolled up again.
    """
    groups: dict[type[Row], list[tuple[Any, ...]]] = {}
    for row in batch:
        groups.setdefault(type(row), []).append(_VALUES[type(row)](row))
    connection.begin()
    try:
        for kind, rows in groups.items():
            with connection.appender(kind.table) as appender:
                appender.append_rows(rows)
        if rolled_until is not None:
            late = [row for row in batch if type(row) in _ROLLED and _time(row) < rolled_until]
            devices = [(row.ts, row.device_id) for row in late if isinstance(row, DeviceSample)]
            note_late(connection, [_time(row) for row in late], devices)
        connection.commit()
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a failed commit has already ended the transaction
            connection.rollback()
        raise


def sort_out(connection: duckdb.DuckDBPyConnection, batch: list[Row]) -> Sorted:
    """Find the rows of a batch that cannot be stored, by halving; nothing is stored."""
    try:
        connection.begin()
        for row in batch:
            with connection.appender(type(row).table) as appender:
                appender.append_rows([_VALUES[type(row)](row)])
    except ROW_FAULTS as error:
        if len(batch) == 1:
            reason = f"{getattr(batch[0], 'table', type(batch[0]).__name__)}: {error}"
            _LOG.error("row_rejected", reason=reason)
            return Sorted([], batch, reason)
    else:
        return Sorted(batch, [])
    finally:
        with contextlib.suppress(duckdb.Error):
            connection.rollback()
    middle = len(batch) // 2
    first, second = sort_out(connection, batch[:middle]), sort_out(connection, batch[middle:])
    return Sorted(first.good + second.good, first.rejected + second.rejected, second.reason or first.reason)


def newest_time(rows: Sequence[Row]) -> datetime | None:
    """The newest `ts` of rows that were sampled on this host, in UTC; None when there is none."""
    newest = max((_time(row) for row in rows if type(row) in _TIMED), default=None)
    return newest.astimezone(UTC) if newest is not None else None
