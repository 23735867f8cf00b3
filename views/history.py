"""The blocks of the History page: moving around in time, the stack of charts, events, and the data behind them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from html import escape
from urllib.parse import urlencode

import pyarrow as pa
import streamlit as st

from views import downloads, formatting, history_charts, tables, timerange
from views.history_charts import BRUSH
from views.history_picture import HistoryPicture
from views.timerange import Extent, Range
from views.urlstate import LONGEST, Window, iso

_TRAIL = "history-trail"  # the ranges before this one, newest last, for the way back
_MOST_STEPS = 50
_RANGE_NAMES = ("range", "from", "to")


def _go(parameters: dict[str, str]) -> None:
    """Show another range; the one before can be gone back to."""
    before = {name: st.query_params[name] for name in _RANGE_NAMES if name in st.query_params}
    if parameters == before:
        return
    st.session_state[_TRAIL] = [*st.session_state.get(_TRAIL, []), before][-_MOST_STEPS:]
    _set(parameters)


def _set(parameters: dict[str, str]) -> None:
    for name in _RANGE_NAMES:
        if name in st.query_params and name not in parameters:
            del st.query_params[name]
    st.query_params.update(parameters)


def go_to(window: Window) -> None:
    """Show a fixed range."""
    _go(timerange.parameters_of(window))


def _back() -> None:
    trail = st.session_state.get(_TRAIL, [])
    if trail:
        _set(trail.pop())


def draw_presets(shown: Range) -> None:
    """The ranges that end now. None is pressed while a fixed range is shown."""
    st.session_state["preset"] = shown.preset

    def choose() -> None:
        name = st.session_state["preset"]
        _go({"range": name} if name else timerange.parameters_of(shown.window))

    st.segmented_control("Range", list(timerange.PRESETS), key="preset", on_change=choose)


def draw_fixed(shown: Range) -> None:
    """A popover that takes the two ends of a fixed range."""
    with st.popover("From / to", icon=":material/date_range:", key="fixed"):
        st.caption("Times are UTC.")
        with st.form("fixed-range", border=False):
            ends = [
                (
                    st.date_input(name, moment.date(), key=f"{name}-day-{iso(moment)}", min_value=date(2000, 1, 1)),
                    st.time_input(
                        f"{name}, time", moment.time().replace(microsecond=0), key=f"{name}-time-{iso(moment)}", step=60
                    ),
                )
                for name, moment in (("From", shown.window.start), ("To", shown.window.end))
            ]
            if st.form_submit_button("Show this range"):
                start, end = (datetime.combine(day, at, UTC) if day and at else None for day, at in ends)
                _take(start, end)


def _take(start: datetime | None, end: datetime | None) -> None:
    if start is None or end is None:
        st.error("Both ends are needed.")
    elif end <= start:
        st.error(f"The end, {formatting.clock(end)}, is not after the beginning, {formatting.clock(start)}.")
    elif end - start > LONGEST:
        st.error("A range can be ten years at most.")
    else:
        go_to(Window(start, end, live=False))
        st.rerun()


def draw_moves(shown: Range, extent: Extent, now: datetime) -> None:
    """Pan, zoom out, and back to the range before."""
    earlier = timerange.panned(shown.window, -1, extent, now)
    later = timerange.panned(shown.window, +1, extent, now)
    wider = timerange.zoomed_out(shown.window, extent, now)
    wider_there = wider.start < shown.window.start or wider.end > shown.window.end
    moves: tuple[tuple[str, str, str, Window | None], ...] = (
        ("earlier", ":material/chevron_left:", "Earlier, by half of this range", earlier),
        ("later", ":material/chevron_right:", "Later, by half of this range", later),
        ("wider", ":material/zoom_out:", "Zoom out: three times this range", wider if wider_there else None),
    )
    with st.container(horizontal=True, gap="xsmall", width="content"):
        for key, icon, words, window in moves:
            st.button(
                "",
                icon=icon,
                key=key,
                help=words,
                disabled=window is None,
                on_click=go_to,
                args=(window or shown.window,),
            )
        st.button(
            "", icon=":material/undo:", key="back", help="Back to the range before",
            disabled=not st.session_state.get(_TRAIL), on_click=_back,
        )  # fmt: skip


def draw_charts(shown: HistoryPicture, window: Window) -> None:
    """What is shown and how fine, then all charts on one time axis. Dragging over one of them zooms."""
    span = f"<b>{formatting.clock(window.start)}</b> to <b>{formatting.clock(window.end, window.start)}</b>"
    words = [
        f"{span} ({escape(length_words(window))})",
        escape(shown.resolution),
        "point for values and reasons, drag to zoom",
    ]
    st.html(f'<p class="er-note er-range">{" · ".join(words)}</p>')
    for note in shown.notes:
        st.html(f'<p class="er-note er-remark">{escape(note)}</p>')
    # Another key for another range: what was dragged over the one must not lie on the other.
    key = f"history-{iso(window.start)}-{iso(window.end)}-{hash(shown.alt)}"

    def zoom() -> None:
        ends = next(iter(st.session_state[key].selection.get(BRUSH, {}).values()), None)
        selected = timerange.chosen(*ends) if ends else None
        if selected is not None:
            go_to(selected)

    with st.container(key="charts"):
        st.html(shown.legend)
        st.vega_lite_chart(
            None,
            {**shown.spec, "datasets": dict(shown.datasets)},
            key=key,
            width="stretch",
            alt=shown.alt,
            on_select=zoom,
            selection_mode=[BRUSH],
        )


def length_words(window: Window) -> str:
    """How long a range is, in one or two units."""
    seconds = round(window.seconds)
    words = []
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit:
            words.append(f"{seconds // unit} {name}")
            seconds %= unit
    return " ".join(words[:2])


def draw_events(shown: HistoryPicture) -> None:
    """The events of the range as a table."""
    if shown.event_rows.num_rows:
        with st.expander(f"Events in this range ({shown.event_rows.num_rows:,})"):
            st.dataframe(tables.event_frame(shown.event_rows.to_pylist()), hide_index=True, width="stretch")


def draw_no_data(window: Window, extent: Extent, now: datetime) -> None:
    """Say that a range has no data, and which has."""
    span = f"{formatting.clock(window.start)} to {formatting.clock(window.end, window.start)}"
    if extent.oldest is None or extent.newest is None:
        st.info(
            "**Nothing has been recorded yet.** Figures appear as soon as the collector has sampled.",
            icon=":material/history:",
        )
        return
    why = " It lies in the future." if window.start > now else ""
    st.info(
        f"**No data from {span}.**{why} There is data from {formatting.clock(extent.oldest)} "
        f"to {formatting.clock(extent.newest)}.",
        icon=":material/history:",
    )
    newest = Window(max(extent.oldest, extent.newest - (window.end - window.start)), extent.newest, live=False)
    st.button("Show the newest data", icon=":material/skip_next:", on_click=go_to, args=(newest,), key="to-newest")


# The charts' rows by query, with the groups of charts that show them.
_DOWNLOADS: tuple[tuple[downloads.Download, str], ...] = (
    (downloads.GENERATION, history_charts.THROUGHPUT),
    (downloads.PROMPT, history_charts.THROUGHPUT),
    (downloads.REQUESTS, history_charts.REQUESTS),
    (downloads.KV, history_charts.KV),
    (downloads.LATENCY, history_charts.LATENCY),
    (downloads.GPU_MEMORY, history_charts.GPU_MEMORY),
    (downloads.GPU_LOAD, history_charts.GPU_LOAD),
    (downloads.HOST_MEMORY, history_charts.HOST),
    (downloads.HOST, history_charts.HOST),
)


def draw_downloads(look: Callable[[], HistoryPicture], groups: tuple[str, ...], window: Window) -> None:
    """The rows that are drawn as CSV; every sample of the range by the routes that stream whole tables."""

    def rows_of(table: str) -> tuple[pa.Table, downloads.Keep]:
        shown = look()
        if table == "events":
            return shown.event_rows, {}
        keep: downloads.Keep = {}
        if table in ("engine_series", "latency_series"):
            keep = {"engine_id": shown.engines}
        elif table in ("device_series", "device_memory_series"):
            keep = {"device_id": shown.devices}
        return shown.found.table(table), keep

    offered = [download for download, group in _DOWNLOADS if group in groups]
    downloads.draw([*offered, downloads.EVENTS], rows_of)
    span = urlencode({"from": iso(window.start), "to": iso(window.end)})
    links = ", ".join(f"[{table}](/export/{table}.csv?{span})" for table in EXPORTED)
    st.markdown(f":small[Every row of this range as it is stored: {links}]")


EXPORTED = ("engine_sample", "latency_bucket", "device_sample", "process_memory", "host_sample", "event")
