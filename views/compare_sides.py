"""
One window of the Compare page, loaded: its configuration, its figures, its lines, and what is to be known about it.

`of_engine` makes it from what the collector sampled; `views.compare_runs` from a load test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pandas as pd

from comparison.configurations import Configuration, compare, differing, of_epoch
from comparison.windows import Figure
from views import compare_absences, compare_events, compare_figures, compare_series, data, formatting, timeline
from views.compare_events import Stretch
from views.compare_series import EngineSeries
from views.compare_windows import Chosen, EngineWindow, length_words, span_words

Row = Mapping[str, Any]
MOSTLY_THERE = 0.98  # of a window; less is worth a sentence


@dataclass(frozen=True, slots=True)
class Side:
    """One window with everything that is shown of it."""

    chosen: Chosen
    title: str
    engine_id: str | None
    when: str  # range and length in words
    configuration: Configuration
    figures: Mapping[str, Figure]  # by key of `comparison.measures`
    notes: tuple[str, ...] = ()  # sentences about this window: gaps, restarts, nothing done
    warning: str | None = None  # why its figures should not be relied on
    lines: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # by data set; `ts` is elapsed ms, `r` the repeat
    line_notes: tuple[str, ...] = ()  # sentences about its lines: of which repeats they are, or why there are none
    stretches: tuple[Stretch, ...] = ()  # where its lines come from, and what happened there
    spread: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # cumulative distributions: value, share
    concurrency: int | None = None  # most requests sent at once, where that is known


def of_engine(chosen: EngineWindow) -> Side:
    """
    Load one engine and time range. Raises `StoreError`, and `LookupError` for an engine that was never seen.
    """
    span: dict[str, datetime] = {"start": chosen.start, "end": chosen.end}
    engine_id = chosen.engine_id
    (summary,) = data.records("window_summary", **span, engine_id=engine_id)
    if summary["kind"] is None:
        raise LookupError(f"No engine “{engine_id}” was ever seen on this host.")
    epochs = set(summary["epoch_ids"] or ())
    lives = [row for row in data.records("epochs", engine_id=engine_id) if row["epoch_id"] in epochs]
    devices = {str(row["device_id"]): row for row in data.records("devices")}
    used = [devices[device] for device in summary["device_ids"] or () if device in devices]
    latency = {str(row["quantity"]): row for row in data.records("latency", **span) if row["engine_id"] == engine_id}
    offers = {str(row["quantity"]): row for row in data.records("quantities", engine_id=engine_id)}
    parts = [row for row in data.records("memory_parts", at=chosen.end) if row["engine_id"] == engine_id]
    series = compare_series.load(span, engine_id, summary["device_ids"] or [])
    labels = {str(row["engine_id"]): str(row["label"]) for row in data.records("overview", at=None)}
    figures = {
        **compare_figures.rates(summary, series),
        **compare_figures.latencies(summary, latency, series),
        **compare_figures.load(summary, series),
        **compare_figures.memory(summary, parts, series),
        **compare_figures.power(summary, series, used, labels),
    }
    absences = compare_absences.Absences(summary, offers, has_devices=bool(devices))
    return Side(
        chosen=chosen,
        title=str(summary["label"]),
        engine_id=engine_id,
        when=span_words(chosen.start, chosen.end),
        configuration=_configuration(summary, lives, used),
        figures={key: absences.explain(key, figure) for key, figure in figures.items()},
        notes=tuple(_notes(chosen, summary, lives, series)),
        lines=compare_series.lines(chosen.start, series),
        line_notes=tuple(_line_notes(series)),
        stretches=(
            compare_events.of_engine(chosen.start, chosen.end, engine_id, summary["device_ids"] or (), series.engine),
        ),
        spread={**compare_series.spread(series), **_latency_spread(span, engine_id)},
    )


def _latency_spread(span: Mapping[str, datetime], engine_id: str) -> dict[str, pd.DataFrame]:
    """The distribution of each latency that the engine offers as a histogram."""
    rows = [row for row in data.records("latency_buckets", **span) if row["engine_id"] == engine_id]
    found: dict[str, pd.DataFrame] = {}
    for key, quantity in compare_figures.LATENCIES.items():
        mine = [row for row in rows if row["quantity"] == quantity]
        if mine:
            found[key] = compare_series.from_buckets(mine)
    return found


def _configuration(summary: Row, lives: Sequence[Row], used: Sequence[Row]) -> Configuration:
    """That of the newest life in the window. An engine that was not sampled in it is known by its kind only."""
    names = [str(row["name"]) for row in used]
    drivers = sorted({str(row["driver_version"]) for row in used if row["driver_version"]})
    label = str(summary["label"])
    if not lives:
        return Configuration(label, summary["kind"], host=summary["host"])
    known = summary["device_memory_method"] is not None or summary["host_memory_method"] is not None
    return of_epoch(label, lives[0], names if known else None, ", ".join(drivers) or None)


def _notes(chosen: EngineWindow, summary: Row, lives: Sequence[Row], series: EngineSeries) -> list[str]:
    """What a careful reader has to know about this window before its figures."""
    samples = summary["samples"]
    if not samples:
        return ["Nothing was sampled: the engine was not there, or no collector ran."]
    notes: list[str] = []
    ready = (summary["ready_samples"] or 0) / samples
    if ready < 1:
        notes.append(f"It was ready in {formatting.fraction(ready)} of its samples.")
    if summary["generation_tokens"] == 0:
        notes.append("It generated nothing.")
    elif summary["working_seconds"] is not None and summary["covered_seconds"]:
        share = summary["working_seconds"] / summary["covered_seconds"]
        if share < MOSTLY_THERE:
            notes.append(f"A request was running in {formatting.fraction(share)} of the time.")
    reach = summary["covered_seconds"] or (summary["last_ts"] - summary["first_ts"]).total_seconds()
    if reach / chosen.seconds < MOSTLY_THERE and chosen.seconds - reach > 10:
        notes.append(
            f"Figures cover {length_words(reach)} of {length_words(chosen.seconds)}: it was sampled from "
            f"{formatting.clock(summary['first_ts'])} to {formatting.clock(summary['last_ts'], summary['first_ts'])}."
        )
    if len(lives) > 1:
        changed = differing(compare([of_epoch("", life) for life in reversed(lives)]))
        what = ", ".join(aspect.name for aspect in changed if aspect.state != "not known")
        times = "once" if len(lives) == 2 else f"{len(lives) - 1} times"
        text = f"It was restarted {times}: figures are over {len(lives)} lives"
        notes.append(text + (f", whose {what} differ." if what else " of one configuration."))
    return notes


def _line_notes(series: EngineSeries) -> list[str]:
    level = timeline.level_of(series.engine)
    return [] if level == "raw" else [f"Its lines are made of rows by the {level}."]
