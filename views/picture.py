"""
One refresh of the Live page, ready to send: made once a second for all viewers of the same view.

What takes time (asking, shaping, stacking, writing cards) happens here; a viewer's own refresh only sends it.
"""

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
from store.model import SourceState
from views import cards, charts, data, formatting, frames, legend, palette, states
from views.data import LiveData
from views.palette import Series
from views.urlstate import Window

SPARK_POINTS = 40
RATES = ("generation_tokens_per_second", "prompt_tokens_per_second")


@dataclass(frozen=True, slots=True)
class Picture:
    """The pieces of one refresh, in the order in which they are drawn. Nobody changes them."""

    found: LiveData
    cards: str  # HTML, empty when there is no engine
    old_cards: str  # HTML of engines that are gone for long
    old_count: int
    notice: str  # HTML, e.g. why there is no GPU
    legend: str  # HTML
    spec: Mapping[str, Any]
    datasets: Mapping[str, pa.Table]
    alt: str
    engines: frozenset[str]  # engine_ids whose lines are drawn


def known_engines() -> dict[str, Series]:
    """Every engine ever seen, by engine_id, with its place in the order of colours. Raises `StoreError`."""
    rows = sorted(data.records("overview", at=None), key=lambda row: (row["first_seen"], row["engine_id"]))
    labels = {str(row["engine_id"]): str(row["label"]) for row in rows}
    return palette.assign(list(labels), labels)


def picture(window: Window, chosen: Sequence[str]) -> Picture:
    """The picture of a window for the engines `chosen` (none: all). Raises `StoreError`."""
    folder = str(settings.load().data)
    return _picture(folder, window.start, window.end, window.live, tuple(sorted(chosen)))


@st.cache_resource(ttl=1, max_entries=64, show_spinner=False)
def _picture(data_folder: str, start: datetime, end: datetime, live: bool, chosen: tuple[str, ...]) -> Picture:
    window = Window(start, end, live)
    return compose(data.load_live(window), known_engines(), chosen)


def compose(found: LiveData, every: Mapping[str, Series], chosen: Sequence[str]) -> Picture:
    """Make the picture of what was found. `every` engine ever seen decides the colours."""
    rows = [row for row in found.engines if not chosen or row["engine_id"] in chosen]
    old = [row for row in rows if cards.is_long_gone(row, found.window.end)]
    now = sorted((row for row in rows if row not in old), key=lambda row: row.get("state") in cards.GONE)
    sampled = set(pc.unique(found.engine_series.column("engine_id")).to_pylist())
    lines = {key: series for key, series in every.items() if key in sampled and (not chosen or key in chosen)}
    holding = set(pc.unique(found.device_memory_series.column("engine_id")).to_pylist())
    holders = {key: series for key, series in every.items() if key in holding}
    resident = set(pc.unique(found.host_memory_series.column("engine_id")).to_pylist())
    residents = {key: series for key, series in every.items() if key in resident}
    devices = tuple((f"d{place}", f"GPU {row['index']}") for place, row in enumerate(found.devices))
    shown = tuple(lines.values())
    grid = frames.grid_seconds(found.window, data.coarsest_points(len(found.engines), len(found.devices)))
    minutes = found.window.seconds / 60
    return Picture(
        found=found,
        cards=_cards(now, every, found),
        old_cards=_cards(old, every, found),
        old_count=len(old),
        notice=_notice(found),
        legend=legend.html(
            [series for key, series in every.items() if key in {*lines, *holders, *residents}],
            [
                f"GPU {row['index']}: {escape(str(row['name']))}, {formatting.size(row.get('memory_total_bytes'))}"
                for row in found.devices
            ],
        ),
        spec=charts.live_spec(shown, tuple(holders.values()), devices, grid, tuple(residents.values())),
        datasets=_datasets(found, lines, every),
        alt=charts.alt_text(charts.panels_of(shown, devices), shown, minutes),
        engines=frozenset(lines),
    )


def _notice(found: LiveData) -> str:
    """What is to be said about the GPUs in one line: there is none, or one of them is in trouble."""
    if not found.devices:
        return f"<b>No GPU on this host:</b> {escape(cards.no_gpu_reason(found))}"
    troubled = [row for row in found.devices if found.window.live and row.get("state") not in (None, SourceState.OK)]
    return "<br>".join(
        f"<b>GPU {row['index']}: {escape(states.look(row['state']).word)}.</b> "
        + escape(str(row.get("detail") or states.look(row["state"]).meaning))
        for row in troubled
    )


def _cards(rows: Sequence[cards.Row], every: Mapping[str, Series], found: LiveData) -> str:
    if not rows:
        return ""
    made = (cards.card(row, every[row["engine_id"]], found, _sparks(found, row["engine_id"])) for row in rows)
    return f'<div class="er-cards">{"".join(made)}</div>'


def _sparks(found: LiveData, engine_id: str) -> dict[str, list[float | None]]:
    table = found.engine_series
    mine = table.filter(pc.equal(table.column("engine_id"), engine_id))
    return {name: mine.column(name).to_pylist()[-SPARK_POINTS:] for name in RATES}


def _datasets(found: LiveData, lines: Mapping[str, Series], every: Mapping[str, Series]) -> dict[str, pa.Table]:
    window = found.window
    made = {
        "window": frames.window_frame(window),
        "engine": frames.engine_frame(found.engine_series, lines),
        "host": frames.host_frame(found.host_series),
        "events": frames.event_frame(found.events, window),
    }
    devices = {str(row["device_id"]): f"d{place}" for place, row in enumerate(found.devices)}
    if devices:
        made["device"] = frames.device_frame(found.device_series, devices)
    parts = frames.part_frame(
        found.host_memory_series,
        frames.newest(found.host_series, "memory_total_bytes"),
        found.device_memory_series,
        devices,
        {str(row["device_id"]): row.get("memory_total_bytes") for row in found.devices},
        every,
        window,
    )
    if parts is not None:
        made["parts"] = parts
    return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in made.items()}
