"""
Retention: samples and rollups by the minute are deleted by the hour, only after they were rolled up.

Where samples go to the archive, they are deleted by whole UTC days, because an archive file holds one.

Engines, epochs, events, offers, memory plans, load tests, reports and rollups by the hour are kept for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duckdb

from settings import StoreSettings
from store.rollup import BEGINNING, FAMILIES, HOUR, SAMPLES, floor, state

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Level:
    """Tables whose rows are kept for so many days, and the column of `rollup_state` that says since when."""

    tables: tuple[str, ...]
    days: int
    kept_from: str
    step: timedelta  # what is deleted at once


def levels(settings: StoreSettings) -> tuple[Level, ...]:
    """What is deleted at some time. How sources did is not rolled up: nobody looks back further than a day."""
    step = DAY if settings.archive else HOUR
    samples = tuple(table for table in SAMPLES if table != "latency_bucket")
    minutes = tuple(f"{family}_minute" for family in FAMILIES)
    return (
        Level(("latency_bucket", "source_health"), settings.detail_days, "histogram_from", step),
        Level(samples, settings.raw_days, "raw_from", step),
        Level(minutes, settings.minute_days, "minute_from", HOUR),
    )


def archived(level: Level, settings: StoreSettings) -> bool:
    """Whether the rows of a level are kept as files."""
    return settings.archive and level.kept_from != "minute_from"


def due(connection: duckdb.DuckDBPyConnection, level: Level, now: datetime) -> datetime | None:
    """The oldest step that lies wholly before the days to keep and is in the rollups by the hour; None: none."""
    rolled = state(connection).hour_until
    end = floor(min(now - timedelta(days=level.days), rolled or BEGINNING), level.step)
    # S608: tables and columns are the constants above, in this and all statements of this module.
    parts = " UNION ALL ".join(f"SELECT min(ts) AS ts FROM {table} WHERE ts < $end" for table in level.tables)  # noqa: S608
    oldest = connection.execute(f"SELECT min(ts) FROM ({parts})", {"end": end}).fetchall()[0][0]  # noqa: S608
    return floor(oldest.astimezone(UTC), level.step) if isinstance(oldest, datetime) else None


def begin(connection: duckdb.DuckDBPyConnection, level: Level, start: datetime) -> None:
    """Let readers look for this step in the coarser rows from now on. Commit it before any row is deleted."""
    connection.execute(
        f"UPDATE rollup_state SET {level.kept_from} = greatest(coalesce({level.kept_from}, $until), $until)",  # noqa: S608
        {"until": start + level.step},
    )


def delete(connection: duckdb.DuckDBPyConnection, table: str, start: datetime, end: datetime) -> int:
    """Delete the rows of [start, end); returns how many."""
    deleted = connection.execute(f"DELETE FROM {table} WHERE ts >= $a AND ts < $b", {"a": start, "b": end})  # noqa: S608
    return int(deleted.fetchall()[0][0])
