"""How fine a chart's series can be: raw samples where there are few enough, else buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """Table of a series, the columns that tell its lines apart, and which rows belong to it."""

    table: str
    key: str
    condition: str = "true"


@dataclass(frozen=True, slots=True)
class Plan:
    """Range clamped to the data, bucket width (0: raw samples) and what counts as a gap, in seconds."""

    start: datetime
    end: datetime
    bucket_seconds: float
    gap_seconds: float


def plan(cursor: duckdb.DuckDBPyConnection, source: Source, start: datetime, end: datetime, points: int) -> Plan:
    """
    Choose the resolution so that no line has more than `points` rows, rows of gaps included.

    Raw samples as they are where they fit; else buckets of max(range / (points - 1), 2 x interval),
    rounded up to whole seconds. A gap is longer than max(3 x interval, 2 x bucket), where the interval
    is the median distance of samples. An empty, reversed or future range gives an empty plan.
    """
    # S608: table, key and condition are constants of `store.queries`.
    where = f"ts >= $start AND ts <= $end AND ({source.condition})"
    counted = cursor.execute(
        f"SELECT min(low), max(high), max(samples) FROM (SELECT min(ts) AS low, max(ts) AS high, "  # noqa: S608
        f"count(DISTINCT ts) AS samples FROM {source.table} WHERE {where} GROUP BY {source.key})",
        {"start": start, "end": end},
    ).fetchall()[0]
    if counted[0] is None:
        return Plan(_EPOCH, _EPOCH, 0.0, 1.0)
    low, high, samples = counted[0].astimezone(UTC), counted[1].astimezone(UTC), int(counted[2])
    span = (high - low).total_seconds()
    finest = math.ceil(span / (points - 1))
    if samples > 4 * points:
        # The mean distance of samples is then under a quarter of the bucket, so that neither
        # 2 x interval nor 3 x interval decides anything: no need to read every distance.
        return Plan(low, high, float(finest), 2.0 * finest)
    distances = (
        f"SELECT {source.key} AS line, epoch(ts) - epoch(lag(ts) OVER (PARTITION BY {source.key} ORDER BY ts)) "  # noqa: S608
        f"AS distance FROM (SELECT DISTINCT {source.key}, ts FROM {source.table} WHERE {where})"
    )
    measured = cursor.execute(
        f"WITH d AS MATERIALIZED ({distances}), m AS (SELECT coalesce(median(distance), 1.0) AS interval FROM d), "  # noqa: S608
        "g AS (SELECT count(*) AS rows, count(*) FILTER (distance > 3 * interval) AS gaps FROM d, m GROUP BY line) "
        "SELECT any_value(interval), max(rows + gaps) FROM g, m",
        {"start": start, "end": end},
    ).fetchall()[0]
    interval, rows = float(measured[0]), int(measured[1])
    if rows <= points:
        return Plan(low, high, 0.0, 3 * interval)
    bucket = float(max(finest, math.ceil(2 * interval), 1))
    return Plan(low, high, bucket, max(3 * interval, 2 * bucket))
