"""
The blocks of the Compare page, top to bottom: windows, what differs between their configurations, figures, lines.

What makes a comparison unfair is told before any figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape

import pyarrow as pa
import streamlit as st

import settings
from comparison import configurations
from views import compare_charts, compare_controls, compare_runs, compare_sides, compare_table, compare_windows
from views.compare_sides import Side
from views.compare_windows import Chosen, EngineWindow, letter, overlaps
from views.palette import Series

SETTLED_AFTER = timedelta(minutes=5)
DISTRIBUTIONS = ("generation", "ttft", "itl", "tpot", "e2e")


def resolved(windows: Sequence[Chosen], engines: Mapping[str, str]) -> list[Chosen]:
    """The windows with an engine's label, where a person wrote one, replaced by its id. `engines`: label by id."""
    ids = {label: engine_id for engine_id, label in engines.items()}
    return [
        EngineWindow(ids.get(window.engine_id, window.engine_id), window.start, window.end)
        if isinstance(window, EngineWindow) and window.engine_id not in engines
        else window
        for window in windows
    ]


def _load(data_folder: str, window: Chosen) -> Side | str:
    """One window, loaded; a sentence where it can't be shown. `data_folder` is only part of the cache's key."""
    try:
        return compare_sides.of_engine(window) if isinstance(window, EngineWindow) else compare_runs.of_run(window)
    except LookupError as error:
        return str(error.args[0])


# What has ended long ago changes no more, but that samples become minutes and hours.
_settled = st.cache_resource(ttl=300, max_entries=64, show_spinner=False)(_load)
_recent = st.cache_resource(ttl=20, max_entries=64, show_spinner=False)(_load)


def _side(data_folder: str, window: Chosen) -> Side | str:
    if isinstance(window, EngineWindow) and window.end < datetime.now(UTC) - SETTLED_AFTER:
        return _settled(data_folder, window)
    return _recent(data_folder, window)


def draw_invitation(windows: Sequence[Chosen], engines: Mapping[str, str], now: datetime) -> None:
    """What to do where there are fewer than two windows, with comparisons that are likely to be asked for."""
    if not engines:
        st.info("**No engine has been seen yet.** Its first samples make the first window.", icon=":material/search:")
        return
    text = "Add a second window to compare this one with." if windows else "Choose two or more windows to compare."
    st.info(f"**{text}** A window is an engine and a time range, a life of an engine, or a load test.",
            icon=":material/compare_arrows:")  # fmt: skip
    found = compare_controls.quick_starts(engines, now) if not windows else _against(windows[0])
    with st.container(horizontal=True, gap="small"):
        for name, chosen in found.items():
            st.button(name, key=f"quick-{name}", on_click=compare_controls.show, args=(chosen,))


def _against(window: Chosen) -> dict[str, list[Chosen]]:
    if not isinstance(window, EngineWindow):
        return {}
    return {name: [window.shifted(back), window] for name, back in compare_windows.SHIFTS.items()}


def draw(windows: Sequence[Chosen], known: Mapping[str, Series]) -> None:
    """Load all windows, then draw everything. Raises `StoreError`."""
    folder = str(settings.load().data)
    with st.spinner("Reading the windows"):
        loaded = [_side(folder, window) for window in windows]
    sides = [side for side in loaded if isinstance(side, Side)]
    colours = compare_charts.colours(sides, {key: series.place for key, series in known.items()})
    by_side = dict(zip((place for place, side in enumerate(loaded) if isinstance(side, Side)), colours, strict=True))
    compare_controls.draw_windows(windows, loaded, by_side)
    missing = [
        f"**{letter(n)} can't be shown:** {compare_windows.literal(side)}"
        for n, side in enumerate(loaded)
        if isinstance(side, str)
    ]
    for text in missing:
        st.warning(text, icon=":material/link_off:")
    if not sides:
        return
    if missing:
        st.caption("The letters below are those of the windows that can be shown.")
    _draw_notes(windows if len(sides) == len(windows) else [side.chosen for side in sides], sides)
    if len(sides) > 1:
        draw_configurations(sides, colours)
    _draw_figures(sides, colours)
    _draw_charts(sides, colours)


def _draw_notes(windows: Sequence[Chosen], sides: Sequence[Side]) -> None:
    """What has to be known about single windows before their figures are read."""
    for n, side in enumerate(sides):
        if side.warning:
            st.error(f"**{letter(n)}:** {compare_windows.literal(side.warning)}", icon=":material/gpp_bad:")
    lines = [f"<b>{letter(n)}</b> {escape(' '.join(side.notes))}" for n, side in enumerate(sides) if side.notes]
    lines += [
        f"<b>{letter(first)} and {letter(second)}</b> share some time: they are not independent."
        for first, second in overlaps(windows)
    ]
    kinds = {isinstance(window, EngineWindow) for window in windows}
    if len(kinds) > 1:
        lines.append(
            "An engine tells its own latencies, a load test those that its client saw: the client's have the way there "
            "and back in them, and are of its own requests only."
        )
    if lines:
        st.html(f'<p class="er-note">{"<br>".join(lines)}</p>')


def draw_configurations(sides: Sequence[Side], colours: Sequence[Series]) -> None:
    """What differs between the configurations, the unfair differences first and in words."""
    named = [_named(side, n) for n, side in enumerate(sides)]
    most = max((side.concurrency for side in sides if side.concurrency), default=None)
    aspects = configurations.compare(named, most)
    unfair = configurations.unfair(aspects)
    st.subheader("What differs", anchor=False)
    if unfair:
        lines = "\n".join(f"- {aspect.text}" for aspect in unfair)
        st.warning(f"**Read the figures with this in mind:**\n{lines}", icon=":material/balance:")
    told = configurations.differing(aspects)
    if told:
        st.html(compare_table.aspect_table(told, sides, colours))
    else:
        st.markdown("Nothing that is known differs between the configurations.")
    same = [aspect for aspect in aspects if aspect not in told]
    with st.expander(f"{len(same)} aspects that do not differ, or that no window tells"):
        st.html(compare_table.aspect_table(same, sides, colours))


def _named(side: Side, place: int) -> configurations.Configuration:
    """The configuration of a side under its letter, so that sentences name the window."""
    return replace(side.configuration, name=letter(place))


def _draw_figures(sides: Sequence[Side], colours: Sequence[Series]) -> None:
    st.subheader("Figures", anchor=False)
    if len(sides) > 1:
        st.html(
            '<p class="er-note">Below each figure: its difference from A, its ratio to A with the interval that '
            "belongs to it (on hover: how it was made, or why there is none).</p>"
        )
    st.html(compare_table.table(sides, colours))
    if nowhere := compare_table.none_there(sides):
        st.html(nowhere)
    _download("Figures", lambda: compare_table.csv_bytes(sides), "figures")


def _draw_charts(sides: Sequence[Side], colours: Sequence[Series]) -> None:
    spec, datasets, words = compare_charts.overlay(sides, colours)
    st.subheader("Laid over each other", anchor=False)
    if notes := _line_notes(sides):
        st.html(f'<p class="er-note">{"<br>".join(notes)}</p>')
    if spec:
        with st.container(key="charts"):
            st.html(compare_table.legend(sides, colours))
            _chart(spec, datasets, words, "overlay")
        _download("Lines", lambda: compare_charts.overlay_csv(sides), "lines")
    else:
        st.caption("No window has lines: no collector sampled an engine then.")
    found = {key: compare_charts.spread(key, sides, colours) for key in DISTRIBUTIONS}
    there = {key: chart for key, chart in found.items() if chart[0]}
    if not there:
        return
    st.subheader("How the values are distributed", anchor=False)
    st.html('<p class="er-note">Two windows of one mean can differ in everything else: a steep line is a steady '
            "engine, a long flat end is a slow tail. A line with points comes from a histogram and is known at its "
            "points only.</p>")  # fmt: skip
    with st.grid(min_column_width=420, gap="medium"):
        for key, (one, rows, text) in there.items():
            _chart(one, rows, text, f"spread-{key}")


def _line_notes(sides: Sequence[Side]) -> list[str]:
    """What has to be known about the lines as HTML, one line for all windows of which the same is said."""
    letters: dict[str, list[str]] = {}
    for n, side in enumerate(sides):
        if side.line_notes:
            letters.setdefault(" ".join(side.line_notes), []).append(letter(n))
    return [f"<b>{', '.join(those)}</b> {escape(text)}" for text, those in letters.items()]


def _chart(spec: Mapping[str, object], datasets: Mapping[str, pa.Table], words: str, key: str) -> None:
    # Another key for another layout: data of the one must not be patched into the view of the other.
    shape = hash(str(spec)) % 10**8
    st.vega_lite_chart(
        None, {**spec, "datasets": dict(datasets)}, key=f"{key}-{shape}", width="stretch", alt=words
    )  # fmt: skip


def _download(name: str, make: Callable[[], bytes], file: str) -> None:
    st.download_button(
        f"{name} as CSV",
        data=make,
        file_name=f"engine-room_compare-{file}.csv",
        mime="text/csv",
        key=f"csv-{file}",
        on_click="ignore",
        type="tertiary",
        icon=":material/download:",
    )
