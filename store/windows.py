"""
Sums over one window: which samples, minutes and hours they are made of.

A chart may show a little more than its range; a sum may not. So a window is taken from samples where it is
short; else from whole minutes, with whole hours inside them, and from samples at its edges and after the newest
rollup. Increases add up exactly at every level, see `schema/0006_rollups.sql`. Where the samples of an edge have been
deleted, it is rounded outwards to a minute (an hour, where minutes are gone too); `first_ts` and `last_ts` of the rows
tell how far.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import duckdb

from store.rollup import HOUR, MINUTE, State, floor, state

SHORT = timedelta(minutes=15)  # up to here from samples alone
Level = Literal["raw", "minute", "hour"]
_SOURCE = re.compile(r"\(@(\w+)\)")
# Rows of rollup tables by family; `latency_part` is shaped as histogram_increase_between.
_ROLLED = {
    "latency_part": """
        SELECT engine_id, epoch_id, quantity, unnest(bounds::DOUBLE[]) AS le,
            unnest(observations_increase) AS observations, seconds_increase AS sum_seconds
        FROM latency_{level} WHERE ts >= {start} AND ts < {end}""",
    "running": """
        SELECT engine_id, requests_running_max AS requests_running FROM engine_{level}
        WHERE ts >= {start} AND ts < {end}""",
}
_RAW = {
    "engine": "FROM engine_rollup({start}, {end}, 3600.0, {start} - INTERVAL 60 SECOND, {end})",
    "process_memory": "FROM process_memory_rollup({start}, {end}, 3600.0, {start}, {end})",
    # by the minute, so that the usual distance of samples shows beside a gap
    "device": "FROM device_rollup({start}, {end}, 60.0, {start} - INTERVAL 60 SECOND, {end})",
    "latency_part": """
        SELECT engine_id, epoch_id, quantity, le, observations, sum_seconds
        FROM histogram_increase_between({start}, {end})""",
    "running": "SELECT engine_id, requests_running FROM engine_sample WHERE ts >= {start} AND ts < {end}",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a window and the level that it is taken from; `end` is not in it."""

    level: Level
    start: datetime
    end: datetime


def pieces(known: State, kept_from: datetime | None, start: datetime, end: datetime) -> list[Piece]:
    """
    The parts of a window, without overlap. `kept_from`: samples before it have been deleted; None: none was.

    A reversed window is empty.
    """
    if end <= start:
        return []
    rolled = known.minute_until
    if rolled is None or (_there(kept_from, start) and end - start <= SHORT) or start >= rolled:
        return [Piece("raw", start, end)]
    first, last = floor(start, MINUTE), min(_ceiling(min(end, rolled), MINUTE), rolled)
    edges: list[Piece] = []
    if first < start and _there(kept_from, start):
        first += MINUTE
        edges.append(Piece("raw", start, first))
    if end > rolled:
        edges.append(Piece("raw", rolled, end))
    elif end < last and _there(kept_from, last - MINUTE):
        last -= MINUTE
        edges.append(Piece("raw", last, end))
    hours = known.hour_until or first
    begin, finish = _ceiling(first, HOUR), floor(min(last, hours), HOUR)
    if known.minute_from is not None:  # older minutes are gone: whole hours stand for them
        begin = floor(first, HOUR) if first < known.minute_from else begin
        finish = min(_ceiling(last, HOUR), hours) if last <= known.minute_from else finish
    if begin >= finish:
        return [Piece("minute", first, last), *edges]
    parts = [Piece("minute", first, begin), Piece("hour", begin, finish), Piece("minute", finish, last)]
    return [*(part for part in parts if part.start < part.end), *edges]


def _there(kept_from: datetime | None, moment: datetime) -> bool:
    """Whether the samples from a moment on are still in the store."""
    return kept_from is None or moment >= kept_from


def sql(cursor: duckdb.DuckDBPyConnection, text: str, start: datetime, end: datetime) -> str:
    """`text` with every `(@family)` replaced by the rows of that family in the window."""
    known = state(cursor)
    kept = {"latency_part": known.histogram_from}

    def rows(match: re.Match[str]) -> str:
        family = match[1]
        parts = pieces(known, kept.get(family, known.raw_from), start, end) or [Piece("raw", start, start)]
        return "(" + " UNION ALL BY NAME ".join(f"({_rows(family, part)})" for part in parts) + ")"

    return _SOURCE.sub(rows, text)


def _rows(family: str, part: Piece) -> str:
    # Times are our own: no text of a reader gets here.
    bounds = {"start": _literal(part.start), "end": _literal(part.end)}
    if part.level == "raw":
        return _RAW[family].format(**bounds)
    usual = "FROM " + family + "_{level} WHERE ts >= {start} AND ts < {end}"
    return _ROLLED.get(family, usual).format(level=part.level, **bounds)


def _literal(moment: datetime) -> str:
    return f"TIMESTAMPTZ '{moment.isoformat()}'"


def _ceiling(moment: datetime, width: timedelta) -> datetime:
    below = floor(moment, width)
    return below if below == moment else below + width
