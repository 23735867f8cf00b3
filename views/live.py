"""The blocks of the Live page: cards, the stack of charts, and the data behind them as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from html import escape

import pyarrow as pa
import streamlit as st

from views import cards, charts, data, formatting, frames, palette
from views.data import LiveData
from views.palette import Series
from views.urlstate import Window

SPARK_POINTS = 40


def known_engines() -> dict[str, Series]:
    """Every engine ever seen, by engine_id, with its place in the order of colours. Raises `StoreError`."""
    rows = data.records("overview", at=None)
    return palette.assign(
        [str(row["engine_id"]) for row in rows], {str(row["engine_id"]): str(row["label"]) for row in rows}
    )


def _series(found: LiveData) -> dict[str, Series]:
    rows = found.engines
    return palette.assign(
        [str(row["engine_id"]) for row in rows], {str(row["engine_id"]): str(row["label"]) for row in rows}
    )


def draw_status(window: Window) -> None:
    """When the figures were read, or which range is frozen."""
    if window.live:
        text = f"updated {formatting.clock(window.end, window.end)}"
    else:
        text = f"<b>frozen</b> {formatting.clock(window.start)} to {formatting.clock(window.end, window.start)}"
    st.html(f'<p class="er-note er-updated">{text}</p>')


def draw_cards(found: LiveData, chosen: Sequence[str]) -> None:
    """One card an engine; engines that are gone for more than a day go under an expander."""
    engines = _series(found)
    rows = [row for row in found.engines if not chosen or row["engine_id"] in chosen]
    old = [row for row in rows if cards.is_long_gone(row, found.window.end)]
    now = sorted((row for row in rows if row not in old), key=lambda row: row.get("state") in cards.GONE)

    def html(these: Sequence[cards.Row]) -> str:
        made = (cards.card(row, engines[row["engine_id"]], found, _sparks(found, row["engine_id"])) for row in these)
        return f'<div class="er-cards">{"".join(made)}</div>'

    if now:
        st.html(html(now))
    if old:
        with st.expander(f"{len(old)} stopped more than a day ago"):
            st.html(html(old))


def _sparks(found: LiveData, engine_id: str) -> Mapping[str, Sequence[float | None]]:
    table = found.engine_series
    mine = table.filter(pa.compute.equal(table.column("engine_id"), engine_id))
    names = ("generation_tokens_per_second", "prompt_tokens_per_second")
    return {name: mine.column(name).to_pylist()[-SPARK_POINTS:] for name in names}


def draw_charts(found: LiveData, chosen: Sequence[str]) -> None:
    """All charts on one time axis, and their data as CSV. A host without GPU is told in one line."""
    every = _series(found)
    engines = {key: series for key, series in every.items() if not chosen or key in chosen}
    devices = {str(row["device_id"]): f"d{place}" for place, row in enumerate(found.devices)}
    names = tuple((f"d{place}", f"GPU {row['index']}") for place, row in enumerate(found.devices))
    if not found.devices:
        st.html(f'<p class="er-note"><b>No GPU on this host:</b> {escape(cards.no_gpu_reason(found))}</p>')
    window = found.window
    grid = frames.grid_seconds(window, data.MOST_POINTS)
    shown = tuple(engines.values())
    spec = charts.live_spec(shown, tuple(every.values()), names, grid)
    totals = {str(row["device_id"]): row.get("memory_total_bytes") for row in found.devices}
    datasets = {
        "window": frames.window_frame(window),
        "engine": frames.engine_frame(found.engine_series, engines),
        "host": frames.host_frame(found.host_series),
        "events": frames.event_frame(found.events, window),
    }
    if devices:
        datasets["device"] = frames.device_frame(found.device_series, devices)
        datasets["parts"] = frames.memory_frame(found.device_memory_series, every, devices, totals, window)
    with st.container(key="charts"):
        st.html(_legend(tuple(every.values()) if devices else shown, found.devices))
        st.vega_lite_chart(
            None,
            {**spec, "datasets": datasets},
            key=f"live-{len(shown)}-{len(names)}",
            width="stretch",
            alt=charts.alt_text(charts.panels_of(shown, names), shown, window.seconds / 60),
        )
    _draw_downloads(found, frozenset(engines))


_ENGINE = ("ts", "engine_id", "label")
# (name of the chart, query, its columns); their names carry the units, `ts` becomes `time_utc`.
DOWNLOADS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Generation",
        "engine_series",
        (*_ENGINE, *(f"generation_tokens_per_second{end}" for end in ("", "_min", "_max")), "generation_source"),
    ),
    ("Prompt", "engine_series", (*_ENGINE, *(f"prompt_tokens_per_second{end}" for end in ("", "_min", "_max")))),
    ("Requests", "engine_series", (*_ENGINE, "requests_running", "requests_waiting")),
    (
        "GPU memory",
        "device_memory_series",
        ("ts", "device_id", "part", "engine_id", "method", "memory_bytes"),
    ),
    (
        "GPU use and power",
        "device_series",
        ("ts", "device_id", "name", "utilisation_fraction", "power_watts", "temperature_celsius"),
    ),
    ("Host", "host_series", ("ts", "host", "memory_total_bytes", "memory_used_bytes", "cpu_fraction")),
)


def _legend(engines: Sequence[Series], devices: data.Records) -> str:
    """What the lines and areas are, above the charts."""
    entries = [f"<span>{palette.swatch(series)}{escape(series.label)}</span>" for series in engines]
    if devices:
        for key, name in (("other", "other processes"), ("driver", "driver and unattributed")):
            box = f'<i class="er-box" style="opacity:{charts.REST_OPACITY[key]}"></i>'
            entries.append(f"<span>{box}{name}</span>")
    entries.append(f"<span>{palette.limit_swatch()}installed memory</span>")
    entries += [
        f"<span>GPU {row['index']}: {escape(str(row['name']))}, {formatting.size(row.get('memory_total_bytes'))}</span>"
        for row in devices
    ]
    return f'<div class="er-legend">{"".join(entries)}</div>'


def _draw_downloads(found: LiveData, engines: frozenset[str]) -> None:
    """One CSV button a chart. What is shown now is what is written; it is made when the button is pressed."""
    tables = {
        "engine_series": found.engine_series,
        "device_series": found.device_series,
        "device_memory_series": found.device_memory_series,
        "host_series": found.host_series,
    }
    stamp = f"{found.window.end.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(":small[Data of each chart as CSV:]", width="content")
        for name, table, columns in DOWNLOADS:
            if table.startswith("device") and not found.devices:
                continue
            keep = {"engine_id": engines} if table == "engine_series" else {}
            st.download_button(
                name,
                data=_csv_later(tables[table], columns, keep),
                file_name=f"engine-room_{name.lower().replace(' ', '-')}_{stamp}.csv",
                mime="text/csv",
                key=f"csv-{name}",
                on_click="ignore",
                type="tertiary",
                icon=":material/download:",
            )


def _csv_later(table: pa.Table, columns: Sequence[str], keep: Mapping[str, frozenset[str]]) -> Callable[[], bytes]:
    return lambda: frames.csv_bytes(table, columns, keep)
