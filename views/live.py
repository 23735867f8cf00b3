"""The blocks of the Live page: cards, the stack of charts, and the data behind them as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import streamlit as st

from views import formatting, frames
from views.picture import Picture
from views.urlstate import Window


def draw_status(window: Window) -> None:
    """When the figures were read, or which range is frozen."""
    if window.live:
        text = f"updated {formatting.clock(window.end, window.end)}"
    else:
        text = f"<b>frozen</b> {formatting.clock(window.start)} to {formatting.clock(window.end, window.start)}"
    st.html(f'<p class="er-note er-updated">{text}</p>')


def draw_cards(shown: Picture) -> None:
    """One card an engine; engines that are gone for more than a day go under an expander."""
    if shown.cards:
        st.html(shown.cards)
    if shown.old_count:
        with st.expander(f"{shown.old_count} stopped more than a day ago"):
            st.html(shown.old_cards)


def draw_charts(shown: Picture) -> None:
    """All charts on one time axis. A host without GPU is told in one line."""
    if shown.notice:
        st.html(f'<p class="er-note">{shown.notice}</p>')
    with st.container(key="charts"):
        st.html(shown.legend)
        st.vega_lite_chart(
            None,
            {**shown.spec, "datasets": dict(shown.datasets)},
            # Another key for another layout: data of the one must not be patched into the view of the other.
            key=f"live-{len(shown.engines)}-{len(shown.found.devices)}",
            width="stretch",
            alt=shown.alt,
        )


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
    ("Host memory", "host_memory_series", ("ts", "host", "part", "engine_id", "method", "memory_bytes")),
    ("Host", "host_series", ("ts", "host", "memory_total_bytes", "memory_used_bytes", "cpu_fraction")),
)


def draw_downloads(look: Callable[[], Picture]) -> None:
    """
    One CSV button a chart. `look` gives the picture when a button is pressed, so drawing the buttons costs nothing.

    They stand outside the block that refreshes: a button that is drawn anew each time is hard to hit.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(":small[Data of each chart as CSV:]", width="content")
        for name, table, columns in DOWNLOADS:
            st.download_button(
                name,
                data=_csv_later(look, table, columns),
                file_name=f"engine-room_{name.lower().replace(' ', '-')}.csv",
                mime="text/csv",
                key=f"csv-{name}",
                on_click="ignore",
                type="tertiary",
                icon=":material/download:",
            )


def _csv_later(look: Callable[[], Picture], table: str, columns: Sequence[str]) -> Callable[[], bytes]:
    def make() -> bytes:
        shown = look()
        rows: pa.Table = getattr(shown.found, table)
        keep = {"engine_id": shown.engines} if table == "engine_series" else {}
        return frames.csv_bytes(rows, columns, keep)

    return make
