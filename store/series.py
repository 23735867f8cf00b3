"""
How fine a chart's series can be, and which rows it is made of.

Samples as they are where they are few; else buckets of time over samples, or over rollups by the minute or the
hour. Rollups are a little behind: what is newer than they are is rolled up on the way, so that a chart ends now.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal

import duckdb

from store.rollup import HOUR, MINUTE, State, floor, state

Level = Literal["raw", "minute", "hour"]
WIDTHS: dict[Level, timedelta] = {"minute": MINUTE, "hour": HOUR}
SQL_FOLDER = Path(__file__).parent / "sql" / "series"
ENOUGH = 0.4  # a coarser level will do where it gives at least this share of the points
SHORT = timedelta(hours=2)  # up to here from samples, as long as they are kept
# Widths of buckets that people count in, so that series of one view mostly come out the same; above, whole days.
ROUND_SECONDS = (
    *(1, 2, 5, 10, 15, 20, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 20, 30)),
    *(3600 * hours for hours in (1, 2, 3, 4, 6, 8, 12, 24)),
)
UNCHANGED_SECONDS = 60.0  # a histogram that did not change is written again after this long
_NOTHING = datetime(1970, 1, 1, tzinfo=UTC)
_SOURCE = re.compile(r"\(@(\w+)(?: by (\w+))?(?: only (rolled|fresh))?\)")


@dataclass(frozen=True, slots=True)
class Source:
    """Table of a series and its rollups, the columns that tell its lines apart, and which rows of each belong to it."""

    table: str
    family: str
    key: str
    condition: str = "true"
    rolled_condition: str = "true"


@dataclass(frozen=True, slots=True)
class Plan:
    """Range clamped to the data, level, bucket width (0: raw samples) and what counts as a gap, in seconds."""

    start: datetime
    end: datetime
    bucket_seconds: float
    gap_seconds: float
    level: Level = "raw"
    rolled_until: datetime | None = None
    hours_until: datetime | None = None

    def parameters(self, sql: str) -> dict[str, datetime | float]:
        """Values of the parameters that `sql` has."""
        width = WIDTHS.get(self.level, MINUTE)
        rolled = max(self.rolled_until or _NOTHING, self.start)
        every: dict[str, datetime | float] = {
            "start": self.start,
            "end": self.end,
            "bucket_seconds": self.bucket_seconds,
            "gap_seconds": self.gap_seconds,
            "from": floor(self.start, width),
            "hours_until": self.hours_until or _NOTHING,
            "rolled_until": rolled,
            "fresh_since": rolled - timedelta(seconds=120),
            "width_seconds": max(1.0, self.bucket_seconds) if self.level == "raw" else 60.0,
        }
        return {name: value for name, value in every.items() if f"${name}" in sql}


def samples_from(cursor: duckdb.DuckDBPyConnection, source: Source) -> datetime | None:
    """From when on the samples of a series are in the store; None: none was deleted."""
    known = state(cursor)
    return known.histogram_from if source.family == "latency" else known.raw_from


def fine(start: datetime, end: datetime, points: int) -> bool:
    """Whether a range is so short that it is drawn from samples where there are any."""
    return end - start <= SHORT or (end - start) / MINUTE < ENOUGH * points


def round_width(seconds: float) -> float:
    """The next of `ROUND_SECONDS`, or whole days."""
    return float(next((width for width in ROUND_SECONDS if width >= seconds), math.ceil(seconds / 86400) * 86400))


def plan(
    cursor: duckdb.DuckDBPyConnection,
    source: Source,
    start: datetime,
    end: datetime,
    points: int,
    *,
    archived: bool = False,
) -> Plan:
    """
    Choose level and resolution so that no line has more than `points` rows, rows of gaps included. Samples where
    the range is short and they are still there; then by the minute; then by the hour. Samples come as they are
    where they fit; else, and at the other levels, in buckets of max(range / (points - 1), 2 x interval), rounded up
    to `ROUND_SECONDS`. A gap is longer than max(3 x interval, 2 x bucket). An empty, reversed or future range gives
    an empty plan. `archived` says that deleted samples can be read all the same, see `store.archive`.
    """
    known = state(cursor)
    if archived:
        known = replace(known, raw_from=None, histogram_from=None)
    span = _extent(cursor, source, start, end, known)
    if span is None:
        return Plan(_NOTHING, _NOTHING, 0.0, 1.0)
    low, high = span
    level = _level(source, known, low, high, points)
    if level == "raw":
        return _raw(cursor, source, low, high, points)
    width = WIDTHS[level].total_seconds()
    # One more bucket than the range is long begins before it, and rows of gaps need their place.
    bucket = round_width(max((high - low).total_seconds() / max(1, points - 2), width))
    return Plan(low, high, bucket, 2 * bucket, level, known.minute_until, known.hour_until)


def sql(name: str, chosen: Plan) -> str:
    """
    The query that answers a series at the level of its plan.

    In its text `(@family)` stands for the rows of a family, see `rows`; `(@family by macro)` for those of another
    macro than the family's own where they are not rolled up yet; `(@family only rolled)` and `(@family only fresh)`
    for one part of them.
    """
    tail = _text(name)
    if "(@" not in tail:
        tail = _text(f"{name}.{'raw' if chosen.level == 'raw' else 'rolled'}").rstrip() + ",\n" + tail
    return _SOURCE.sub(lambda found: f"({rows(found[1], chosen, found[2], found[3])})", tail)


def rows(family: str, chosen: Plan, macro: str | None = None, only: str | None = None) -> str:
    """SQL of the rollup rows of a family in the range of a plan, what is not rolled up yet included."""
    end = "$end::TIMESTAMPTZ + INTERVAL 1 MICROSECOND"
    fresh = f"FROM {macro or f'{family}_rollup'}($rolled_until, {end}, $width_seconds, $fresh_since, $end)"
    if chosen.level == "raw":
        fresh = fresh.replace("$rolled_until", "$start").replace("$fresh_since", "$start - INTERVAL 120 SECOND")
    parts = []
    if chosen.level == "hour" and only != "fresh":
        parts.append(f"FROM {family}_hour WHERE ts >= $from AND ts <= $end")
        parts.append(f"FROM {family}_minute WHERE ts >= greatest($from, $hours_until) AND ts <= $end")
    elif chosen.level == "minute" and only != "fresh":
        parts.append(f"FROM {family}_minute WHERE ts >= $from AND ts <= $end")
    if only != "rolled" and (chosen.level == "raw" or chosen.rolled_until is None or chosen.end >= chosen.rolled_until):
        parts.append(fresh)
    return " UNION ALL BY NAME ".join(f"({part})" for part in parts or [f"FROM {family}_minute WHERE false"])


@cache
def _text(name: str) -> str:
    return (SQL_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def _extent(
    cursor: duckdb.DuckDBPyConnection, source: Source, start: datetime, end: datetime, known: State
) -> tuple[datetime, datetime] | None:
    """First and last time of any row of the range, from the coarsest rows that tell it."""
    # S608: tables, keys and conditions are constants of `store.queries`, here and below.
    values = {"end": end, "since": start}
    limits = "ts >= $since AND ts <= $end"
    parts = [f"SELECT min(ts) AS low, max(ts) AS high FROM {source.table} WHERE {limits} AND ({source.condition})"]  # noqa: S608
    if known.minute_until is not None:
        hours = known.hour_until or _NOTHING
        values |= {
            "since": max(start, known.minute_until),
            "from": floor(start, HOUR),
            "minutes": floor(max(start, hours), MINUTE),
        }
        for level, begin in (("hour", "$from"), ("minute", "$minutes")):
            parts.append(
                f"SELECT min(first_ts) AS low, max(last_ts) AS high FROM {source.family}_{level} "  # noqa: S608
                f"WHERE ts >= {begin} AND ts <= $end AND ({source.rolled_condition})"
            )
    low, high = cursor.execute(
        f"SELECT min(low), max(high) FROM ({' UNION ALL '.join(parts)})",  # noqa: S608
        values,
    ).fetchall()[0]
    if low is None or start > end:
        return None
    low, high = max(low.astimezone(UTC), start), min(high.astimezone(UTC), end)
    return (low, high) if low <= high else None


def _level(source: Source, known: State, low: datetime, high: datetime, points: int) -> Level:
    kept = known.histogram_from if source.family == "latency" else known.raw_from
    enough = ENOUGH * points
    if known.hour_until is not None and (
        (high - low) / HOUR >= enough or (known.minute_from is not None and low < known.minute_from)
    ):
        return "hour"
    if known.minute_until is not None and (not fine(low, high, points) or (kept is not None and low < kept)):
        return "minute"
    return "raw"


def _raw(cursor: duckdb.DuckDBPyConnection, source: Source, low: datetime, high: datetime, points: int) -> Plan:
    where = f"ts >= $start AND ts <= $end AND ({source.condition})"
    times = f"SELECT DISTINCT {source.key}, ts FROM {source.table} WHERE {where}"  # noqa: S608
    samples = cursor.execute(
        f"SELECT coalesce(max(samples), 0) FROM (SELECT count(*) AS samples FROM ({times}) GROUP BY {source.key})",  # noqa: S608
        {"start": low, "end": high},
    ).fetchall()[0][0]
    finest = round_width(math.ceil((high - low).total_seconds() / (points - 1)))
    if samples > 4 * points:
        # The mean distance of samples is then under a quarter of the bucket, so that neither
        # 2 x interval nor 3 x interval decides anything: no need to read every distance.
        return Plan(low, high, finest, 2.0 * finest)
    distances = (
        f"SELECT {source.key} AS line, epoch(ts) - epoch(lag(ts) OVER (PARTITION BY {source.key} ORDER BY ts)) "  # noqa: S608
        f"AS distance FROM ({times})"
    )
    measured = cursor.execute(
        f"WITH d AS MATERIALIZED ({distances}), m AS (SELECT coalesce(median(distance), 1.0) AS interval FROM d), "  # noqa: S608
        "g AS (SELECT count(*) AS rows, count(*) FILTER (distance > 3 * interval) AS gaps FROM d, m GROUP BY line) "
        "SELECT coalesce(any_value(interval), 1.0), coalesce(max(rows + gaps), 0) FROM g, m",
        {"start": low, "end": high},
    ).fetchall()[0]
    interval, count = float(measured[0]), int(measured[1])
    least = 3 * UNCHANGED_SECONDS if source.family == "latency" else 0.0
    if count <= points:
        return Plan(low, high, 0.0, max(3 * interval, least))
    bucket = round_width(max(finest, math.ceil(2 * interval), 1))
    return Plan(low, high, bucket, max(3 * interval, 2 * bucket, least))
