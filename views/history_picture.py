"""One view of the History page, ready to send: asked for, shaped, and kept for all viewers of the same view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

import settings
from views import formatting, frames, history_charts, history_data, history_frames, legend, timeline
from views.history_charts import GPU_LOAD, GPU_MEMORY, HOST, HOST_ROW, LATENCY
from views.history_data import HistoryData
from views.palette import Series
from views.urlstate import Window

EVERY = "every sample"
LEVELS = {"raw": "raw samples", "minute": "one-minute rollups", "hour": "one-hour rollups"}


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person chose to see. Empty engines or devices: all."""

    groups: tuple[str, ...]
    engines: tuple[str, ...]  # engine_ids
    devices: tuple[str, ...]  # device_ids
    percentiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryPicture:
    """The pieces of one view. Nobody changes them."""

    found: HistoryData
    resolution: str  # in words
    notes: tuple[str, ...]  # what the view leaves out, and why
    legend: str  # HTML
    spec: Mapping[str, Any]
    datasets: Mapping[str, pa.Table]
    alt: str
    engines: frozenset[str]  # engine_ids whose lines are drawn
    devices: frozenset[str]
    event_rows: pa.Table  # of the engines shown, newest first


def picture(window: Window, choice: Choice, every: Mapping[str, Series], device_count: int) -> HistoryPicture:
    """The picture of a window. `every` engine ever seen decides the colours. Raises `StoreError`."""
    folder = str(settings.load().data)
    return _picture(folder, window.start, window.end, choice, tuple(every.values()), device_count)


# Half a minute: a range that ends now gets a new end as often, and a store may still write into one that just ended.
@st.cache_resource(ttl=30, max_entries=32, show_spinner=False)
def _picture(
    data_folder: str, start: datetime, end: datetime, choice: Choice, every: tuple[Series, ...], device_count: int
) -> HistoryPicture:
    engines = len(choice.engines or every)
    found = history_data.load(
        Window(start, end, live=False), choice.groups, engines, len(choice.devices) or device_count
    )
    return compose(found, {series.engine_id: series for series in every}, choice)


def compose(found: HistoryData, every: Mapping[str, Series], choice: Choice) -> HistoryPicture:
    """Make the picture of what was found."""
    wanted = {key: series for key, series in every.items() if not choice.engines or key in choice.engines}
    lines = {key: series for key, series in wanted.items() if key in _values(found.engine_series, "engine_id")}
    holders = {key: every[key] for key in every if key in _values(found.device_memory_series, "engine_id")}
    residents = {key: every[key] for key in every if key in _values(found.host_memory_series, "engine_id")}
    devices = _devices(found.device_series, choice.devices)
    keys = tuple((f"d{place}", device.name) for place, device in enumerate(devices))
    owner = found.events.column("engine_id")
    event_rows = found.events.filter(pc.or_(owner.is_null(), pc.is_in(owner, pa.array(list(wanted), pa.string()))))
    events = event_rows.to_pylist()
    quantities = _latencies(found.latency_series, lines)
    panels = history_charts.panels_of(choice.groups, keys, quantities, choice.percentiles, engines=bool(lines))
    told = {event["engine_id"] for event in events}
    rows = [(series.key, series.label) for key, series in wanted.items() if key in lines or key in told]
    rows.append((HOST_ROW, "host and collector"))
    others = [series for key, series in every.items() if key in {*holders, *residents} and key not in wanted]
    drawn = {name: table for name, table in _named(found).items() if name != "latencies" or quantities}
    return HistoryPicture(
        found=found,
        resolution=resolution(drawn),
        notes=tuple(_notes(found, wanted, lines, quantities, choice)),
        legend=legend.html(
            [series for key, series in wanted.items() if key in {*lines, *holders, *residents}],
            _device_words(devices),
            memory=bool({HOST, GPU_MEMORY} & set(choice.groups)),
            others=others,
        ),
        spec=history_charts.history_spec(
            panels, tuple(rows), tuple(lines.values()), tuple(holders.values()), tuple(residents.values()), keys,
            _grid_seconds(drawn),
        ),
        datasets=_datasets(found, lines, every, devices, events, dict(rows), choice.percentiles),
        alt=history_charts.alt_text(panels, tuple(lines.values()), found.window.seconds / 3600),
        engines=frozenset(lines),
        devices=frozenset(device.device_id for device in devices),
        event_rows=event_rows,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Device:
    device_id: str
    name: str  # "GPU 0"
    model: str
    memory_total_bytes: int | None


def _devices(table: pa.Table | None, chosen: Sequence[str]) -> list[_Device]:
    """The devices that were sampled in the window, by index. Two of one index were there one after the other."""
    if table is None or not table.num_rows:
        return []
    newest: dict[str, dict[str, Any]] = {}
    for row in table.select(["device_id", "index", "name", "memory_total_bytes"]).to_pylist():
        device_id = str(row["device_id"])
        before = newest.get(device_id, {})
        newest[device_id] = {key: value if value is not None else before.get(key) for key, value in row.items()}
    rows = sorted(newest.values(), key=lambda row: (row["index"] is None, row["index"] or 0, row["device_id"]))
    indexes = [row["index"] for row in rows]
    return [
        _Device(
            device_id=str(row["device_id"]),
            name=f"GPU {row['index']}" + (f" {row['device_id'][-4:]}" if indexes.count(row["index"]) > 1 else ""),
            model=str(row["name"]),
            memory_total_bytes=row["memory_total_bytes"],
        )
        for row in rows
        if not chosen or row["device_id"] in chosen
    ]


def _values(table: pa.Table | None, column: str) -> set[str]:
    return set(pc.unique(table.column(column)).to_pylist()) if table is not None else set()


def _latencies(table: pa.Table | None, engines: Mapping[str, Series]) -> tuple[str, ...]:
    """The quantities of which any of `engines` has a figure."""
    if table is None:
        return ()
    known = table.filter(
        pc.and_(
            table.column("p50_seconds").is_valid(),
            pc.is_in(table.column("engine_id"), pa.array(list(engines), pa.string())),
        )
    )
    return tuple(quantity for quantity in history_charts.LATENCIES if quantity in _values(known, "quantity"))


def _grid_seconds(tables: Mapping[str, pa.Table | None]) -> float:
    """The step of the crosshair: the widest step of any table that is drawn, so that no step is without a value."""
    there = [table for table in tables.values() if table is not None and table.num_rows]
    steps = [timeline.step_of(table).total_seconds() for table in there]
    return float(max(1, round(max(steps, default=1.0))))


def resolution(tables: Mapping[str, pa.Table | None]) -> str:
    """How fine the lines of these tables are and where their figures come from, in words."""
    steps: dict[str, list[str]] = {}
    levels: dict[str, list[str]] = {}
    for name, table in tables.items():
        if table is not None and table.num_rows:
            seconds, level = timeline.bucket_seconds(table), timeline.level_of(table)
            steps.setdefault(f"one point = {formatting.step(seconds)}" if seconds else EVERY, []).append(name)
            levels.setdefault(f"from {LEVELS.get(level, level)}", []).append(name)
    told = _told_apart(steps)
    if told and told[0] != EVERY:
        told[0] += ", mean with a band from lowest to highest"
        told = [text.replace(EVERY, f"{EVERY}, as they are sampled less often") for text in told]
    return "; ".join([*told, *_told_apart(levels)])


def _named(found: HistoryData) -> dict[str, pa.Table | None]:
    return {
        "engines": found.engine_series,
        "latencies": found.latency_series,
        "GPUs": found.device_series,
        "GPU memory": found.device_memory_series,
        "host": found.host_series,
        "host memory": found.host_memory_series,
    }


def _told_apart(words: Mapping[str, Sequence[str]]) -> list[str]:
    """What holds for most of the names as it is, then each exception with what it is about."""
    by_most = sorted(words.items(), key=lambda item: -len(item[1]))
    return [*(text for text, _ in by_most[:1]), *(f"{', '.join(names)}: {text}" for text, names in by_most[1:])]


def _notes(
    found: HistoryData,
    wanted: Mapping[str, Series],
    lines: Mapping[str, Series],
    quantities: Sequence[str],
    choice: Choice,
) -> list[str]:
    told = ((table.schema.metadata or {}).get(b"notes") for table in _named(found).values() if table is not None)
    notes = sorted({note.decode() for note in told if note})
    absent = [series.label for key, series in wanted.items() if key not in lines]
    if choice.engines and absent:
        notes.append(f"Not sampled in this range: {', '.join(absent)}.")
    if LATENCY in choice.groups and lines and not quantities:
        notes.append("No latencies: none of these engines told a histogram in this range. A load test measures them.")
    if found.events.num_rows >= history_data.MOST_EVENTS:
        notes.append(f"Only the newest {history_data.MOST_EVENTS:,} events of this range are shown.")
    if GPU_LOAD in choice.groups and found.device_series is not None and not found.device_series.num_rows:
        notes.append("No GPU was sampled in this range.")
    return notes


def _datasets(
    found: HistoryData,
    lines: Mapping[str, Series],
    every: Mapping[str, Series],
    devices: Sequence[_Device],
    events: timeline.Events,
    rows: Mapping[str, str],
    percentiles: Sequence[str],
) -> dict[str, pa.Table]:
    window = found.window
    silences = timeline.nothing_recorded(found.host_series, window, events, found.now)
    segments = {
        engine_id: timeline.of_engine(engine_id, found.engine_series, window, events, silences)
        for engine_id, series in every.items()
        if series.key in rows
    }
    # The only engine's own gaps are told in every chart; those of several would hide each other.
    shades = next(iter(segments.values())) if len(segments) == 1 else silences
    row_of: dict[str | None, str] = {key: series.key for key, series in every.items() if series.key in rows}
    named = {key: (series.key, series.label) for key, series in every.items() if series.key in rows}
    made = {
        "window": frames.window_frame(window),
        "engine": frames.engine_frame(found.engine_series, lines, kv=True),
        "host": frames.host_frame(found.host_series),
        "states": history_frames.state_frame(
            [*(segment for mine in segments.values() for segment in mine), *timeline.of_host(silences, window)],
            {**named, timeline.HOST: (HOST_ROW, rows[HOST_ROW])},
            window,
        ),
        "gaps": history_frames.gap_frame([shade for shade in shades if not shade.serves], window),
        "marks": history_frames.mark_frame(events, window, row_of),
        "events": history_frames.rule_frame(events, window, row_of),
    }
    if found.latency_series is not None:
        made["latency"] = history_frames.latency_frame(found.latency_series, lines, percentiles)
    keys = {device.device_id: f"d{place}" for place, device in enumerate(devices)}
    if found.device_series is not None:
        made["device"] = frames.device_frame(found.device_series, keys, temperature=True)
    parts = frames.part_frame(
        found.host_memory_series,
        frames.newest(found.host_series, "memory_total_bytes"),
        found.device_memory_series,
        keys,
        {device.device_id: device.memory_total_bytes for device in devices},
        every,
        window,
    )
    if parts is not None:
        made["parts"] = parts
    return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in made.items()}


def _device_words(devices: Sequence[_Device]) -> list[str]:
    """Devices of one kind in one entry: eight of them would be eight times the same words."""
    groups: dict[tuple[str, int | None], list[str]] = {}
    for device in devices:
        groups.setdefault((device.model, device.memory_total_bytes), []).append(device.name)
    return [
        f"{', '.join(names)}: {escape(model)}, {formatting.size(total)}" for (model, total), names in groups.items()
    ]
