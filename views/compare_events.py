"""
What happened in the windows of the Compare page, and in which state their engines were, over elapsed time.

Segments and marks are those of the History page; each window is a row in its colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa

from views import data, formatting, history_frames, timeline
from views.frames import milliseconds
from views.history_frames import mark_frame, rule_frame, state_frame
from views.palette import Series
from views.timeline import Segment
from views.urlstate import Window

MOST_EVENTS = 1000
HOST_POINTS = 400
STATES, MARKS, RULES = "states", "marks", "events"  # the data sets made here


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time range whose beginning is 0 on the axis: a window, or one of several repeats of a load test."""

    start: datetime
    end: datetime
    events: data.Records  # of its engine, of its devices, and the collector's own; oldest first
    segments: tuple[Segment, ...] = ()  # in which state the engine was; none of a load test

    @property
    def seconds(self) -> float:
        """Length of the range in seconds."""
        return (self.end - self.start).total_seconds()


def of_engine(
    start: datetime, end: datetime, engine_id: str, device_ids: Sequence[str], engine_series: pa.Table
) -> Stretch:
    """What happened to an engine and to the devices that it held memory on. Raises `StoreError`."""
    events = events_of(start, end, engine_id, device_ids)
    window = Window(start, end, live=False)
    host = data.query("host_series", start=start, end=end, points=HOST_POINTS)
    silences = timeline.nothing_recorded(host, window, events, datetime.now(UTC))
    segments = timeline.of_engine(engine_id, engine_series, window, events, silences)
    return Stretch(start, end, events, tuple(segments))


def of_repeat(start: datetime, end: datetime, engine_id: str, device_ids: Sequence[str], words: str) -> Stretch:
    """What happened during one repeat of a load test, `words` being what it is called. Raises `StoreError`."""
    found = events_of(start, end, engine_id, device_ids)
    prefix = f"{words}: " if words else ""
    events = [{**event, "text": f"{prefix}{timeline.event_text(event)}", "details": None} for event in found]
    return Stretch(start, end, events)


def events_of(start: datetime, end: datetime, engine_id: str, device_ids: Sequence[str]) -> data.Records:
    """The events of a range that bear on one engine, oldest first. Raises `StoreError`."""
    rows = data.records("events", start=start, end=end, limit=MOST_EVENTS)
    return [
        row
        for row in reversed(rows)
        if row["engine_id"] == engine_id
        or (row["engine_id"] is None and row["kind"] in timeline.COLLECTOR_EVENTS)
        or (row["device_id"] is not None and row["device_id"] in device_ids)
    ]


def frames(stretches: Sequence[tuple[Series, Sequence[Stretch]]], longest_seconds: float) -> dict[str, pd.DataFrame]:
    """
    The data sets of the states, of the marks and of the rules over all charts, for an axis of `longest_seconds`.

    Marks that lie too near to each other on that axis become one; a window of very many events has no rules.
    """
    made: dict[str, list[pd.DataFrame]] = {STATES: [], MARKS: [], RULES: []}
    for series, mine in stretches:
        if mine and not any(one.segments for one in mine):
            made[STATES].append(_load_test(series, mine))
        for one in mine:
            axis = Window(one.start, one.start + timedelta(seconds=longest_seconds), live=False)
            rows: dict[str | None, str] = dict.fromkeys((event["engine_id"] for event in one.events), series.key)
            names = {segment.engine_id or "": (series.key, series.label) for segment in one.segments}
            if names:
                made[STATES].append(_elapsed(state_frame(one.segments, names, axis), axis))
            shown = {"s": series.key, "name": series.label}
            made[MARKS].append(_elapsed(mark_frame(one.events, axis, {None: series.key, **rows}), axis))
            made[RULES].append(_elapsed(rule_frame(one.events, axis, rows), axis).assign(**shown))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in made.items() if parts}


def _load_test(series: Series, repeats: Sequence[Stretch]) -> pd.DataFrame:
    """A bar as long as the longest repeat."""
    longest = max(one.seconds for one in repeats)
    count = f"{len(repeats)} repeats, the longest of" if len(repeats) > 1 else "one repeat of"
    words = f"{count} {formatting.age(longest)}"
    row = (0.0, longest * 1000, series.key, series.label, "good", "load test", words, "")
    # Each tone has a row, if only one without length, as in `state_frame`.
    others = [(0.0, 0.0, series.key, "", tone, "", "", "") for tone in ("work", "off")]
    return pd.DataFrame([row, *others], columns=history_frames.STATE_COLUMNS)


def _elapsed(frame: pd.DataFrame, window: Window) -> pd.DataFrame:
    """A frame of the History page with its times counted from the beginning of a window."""
    begin = milliseconds(window.start)
    return frame.assign(**{name: frame[name] - begin for name in ("ts", "te") if name in frame})
