"""
When each engine did what, and why there is nothing where there is nothing: from samples, their gaps and events.

Pure: rows of named queries in, segments of time out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from store.model import SourceState
from views import formatting, states
from views.urlstate import Window

COLLECTOR_EVENTS = ("collector_stopped", "collector_started", "store_gap")
HOST = "(host)"  # in the place of an engine_id
Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which an engine (None: everything) was in one state; None: nothing was recorded."""

    engine_id: str | None
    start: datetime
    end: datetime
    state: str | None
    why: str

    @property
    def serves(self) -> bool:
        """Whether the engine answered with its figures all the time."""
        return self.state is not None and states.look(self.state).tone == "good"

    @property
    def span(self) -> str:
        """From when to when and for how long, in words."""
        return (
            f"{formatting.clock(self.start)} to {formatting.clock(self.end, self.start)} "
            f"({formatting.age((self.end - self.start).total_seconds())})"
        )


def step_of(table: pa.Table) -> timedelta:
    """How long one row of a series stands for: its bucket, or of raw samples a third of what counts as a gap."""
    return timedelta(seconds=bucket_seconds(table)) or gap_of(table) / 3


def bucket_seconds(table: pa.Table) -> float:
    """The width of a series' buckets; 0: samples as they are."""
    return float((table.schema.metadata or {}).get(b"bucket_seconds", 0))


def level_of(table: pa.Table) -> str:
    """What a series was made of: raw | minute | hour."""
    told: bytes = (table.schema.metadata or {}).get(b"level", b"raw")
    return told.decode()


def gap_of(table: pa.Table) -> timedelta:
    """What counts as a gap in a series."""
    return timedelta(seconds=float((table.schema.metadata or {}).get(b"gap_seconds", 3.0)))


def nothing_recorded(host_series: pa.Table, window: Window, events: Events, now: datetime) -> list[Segment]:
    """
    Where not even the host was sampled: the collector did not run, or what it wrote then is deleted.

    The host is sampled every second whatever engines do, so that a gap of it is one of the collector.
    """
    step, tolerated = step_of(host_series), gap_of(host_series)
    times = sorted(
        moment
        for moment, total in zip(
            host_series.column("ts").to_pylist(), host_series.column("memory_total_bytes").to_pylist(), strict=True
        )
        if total is not None
    )
    found: list[Segment] = []
    for start, end in _holes(times, window, step, tolerated):
        if start < now < end:
            found += [_silence(start, now, events, step), _silence(now, end, events, step, future=True)]
        else:
            found.append(_silence(start, end, events, step, future=start >= now))
    return found


def _holes(
    times: Sequence[datetime], window: Window, step: timedelta, tolerated: timedelta
) -> list[tuple[datetime, datetime]]:
    """Stretches of the window without any of `times`, longer than is tolerated. A row covers `step` from its time."""
    if not times:
        return [(window.start, window.end)]
    ends = [window.start, *(moment + step for moment in times)]
    starts = [*times, window.end]
    return [(end, start) for end, start in zip(ends, starts, strict=True) if start - end > tolerated]


def _silence(start: datetime, end: datetime, events: Events, step: timedelta, *, future: bool = False) -> Segment:
    if future:
        return Segment(None, start, end, None, "This has not happened yet.")
    near = [
        event for event in events
        if event["kind"] in COLLECTOR_EVENTS and start - 2 * step <= event["ts"] <= end + 2 * step
    ]  # fmt: skip
    told = "; ".join(
        f"{event['text']} ({formatting.clock(event['ts'])})" for event in sorted(near, key=lambda event: event["ts"])
    )
    why = "Nothing was recorded: the collector did not run, or its rows of this time are gone."
    return Segment(None, start, end, None, f"{why} {told}".strip())


def of_host(silences: Sequence[Segment], window: Window) -> list[Segment]:
    """The segments of the host itself: sampled, but for the silences."""
    found: list[Segment] = []
    at = window.start
    for silence in silences:
        if silence.start > at:
            found.append(Segment(HOST, at, silence.start, SourceState.OK, "Sampled as planned."))
        found.append(Segment(HOST, silence.start, silence.end, None, silence.why))
        at = silence.end
    if at < window.end:
        found.append(Segment(HOST, at, window.end, SourceState.OK, "Sampled as planned."))
    return found


def of_engine(
    engine_id: str, engine_series: pa.Table, window: Window, events: Events, silences: Sequence[Segment]
) -> list[Segment]:
    """The segments of one engine, in order, gaps included. `silences` come from `nothing_recorded`."""
    mine = engine_series.filter(pc.equal(engine_series.column("engine_id"), engine_id))
    step, tolerated = step_of(engine_series), gap_of(engine_series)
    rows = [
        (moment, state)
        for moment, state in zip(mine.column("ts").to_pylist(), mine.column("state").to_pylist(), strict=True)
        if state is not None  # a row of NULLs marks a gap
    ]
    told = sorted((event for event in events if event["engine_id"] == engine_id), key=lambda event: event["ts"])
    runs: list[tuple[datetime, datetime, str]] = []
    for moment, state in rows:
        end = min(moment + step, window.end)
        if runs and runs[-1][2] == state and moment - runs[-1][1] <= tolerated:
            runs[-1] = (runs[-1][0], end, state)
        else:
            if runs and moment - runs[-1][1] <= tolerated:
                runs[-1] = (runs[-1][0], moment, runs[-1][2])
            runs.append((moment, end, state))
    found = [Segment(engine_id, start, end, state, _why(state, start, end, told, step)) for start, end, state in runs]
    for start, end in _holes([moment for moment, _ in rows], window, step, tolerated):
        found.append(Segment(engine_id, start, end, None, _why_nothing(start, end, told, step, silences)))
    return sorted(found, key=lambda segment: segment.start)


def _why(state: str, start: datetime, end: datetime, told: Events, step: timedelta) -> str:
    if states.look(state).tone == "good":
        return "It answered with its figures."
    about = [event for event in told if event["kind"] == state and start - 2 * step <= event["ts"] <= end]
    return str(about[-1]["text"]) if about else states.look(state).meaning


def _why_nothing(start: datetime, end: datetime, told: Events, step: timedelta, silences: Sequence[Segment]) -> str:
    for silence in silences:
        if silence.start - step <= start and end <= silence.end + step:
            return silence.why
    before = [event for event in told if event["ts"] <= start + 2 * step]
    last = f" Last event before: {before[-1]['text']} ({formatting.clock(before[-1]['ts'])})." if before else ""
    return f"No sample of this engine: it did not run here, or was not found.{last}"


def event_text(event: Mapping[str, Any]) -> str:
    """What happened, with what changed: the arguments that came and went stand in the event's details."""
    text = str(event["text"])
    try:
        changes = json.loads(event.get("details") or "{}").get("changes", {})
        before, after = (json.loads(value) if isinstance(value, str) else value for value in changes["arguments"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    if not (isinstance(before, list) and isinstance(after, list)):
        return text
    gone, new = _options(before), _options(after)
    differ = [
        _change(name, gone.get(name), new.get(name)) for name in {**gone, **new} if gone.get(name) != new.get(name)
    ]
    return text.replace("arguments changed", "arguments: " + ", ".join(differ)) if differ else text


def _options(arguments: Sequence[Any]) -> dict[str, str]:
    """A command line as options and their values; what belongs to no option goes by its place."""
    found: dict[str, str] = {}
    name = ""
    for place, word in enumerate(str(argument) for argument in arguments):
        if word.startswith("-"):
            name, _, value = word.partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
            name = ""
        else:
            found[f"argument {place}"] = word
    return found


def _change(name: str, before: str | None, after: str | None) -> str:
    if before is None:
        return f"{name} {after} added".replace("  ", " ")
    if after is None:
        return f"{name} {before} removed".replace("  ", " ")
    return f"{name} {before or 'set'} \N{RIGHTWARDS ARROW} {after or 'set'}"
