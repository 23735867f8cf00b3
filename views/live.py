"""The blocks of the Live page: cards, the stack of charts, and the data behind them as CSV."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import streamlit as st

from views import downloads, formatting
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


def draw_downloads(look: Callable[[], Picture]) -> None:
    """
    One CSV button a chart. `look` gives the picture when a button is pressed.

    They stand outside the block that refreshes: a button that is drawn anew each time is hard to hit.
    """

    def rows_of(table: str) -> tuple[pa.Table, downloads.Keep]:
        shown = look()
        rows: pa.Table = getattr(shown.found, table)
        return rows, {"engine_id": shown.engines} if table == "engine_series" else {}

    downloads.draw(
        (
            downloads.GENERATION,
            downloads.PROMPT,
            downloads.REQUESTS,
            downloads.GPU_MEMORY,
            downloads.GPU_LOAD,
            downloads.HOST_MEMORY,
            downloads.HOST,
        ),
        rows_of,
    )
