"""The results of load tests: curves, differences, the requests of a stage, what the engines used, tables and CSV."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from views import data, formatting, frames, loadtest_charts, loadtest_curves, loadtest_data, loadtest_frames
from views import loadtest_tables as tables
from views import loadtest_words as words
from views.loadtest_curves import Drawing
from views.loadtest_data import Run
from views.loadtest_tables import Side
from views.palette import Series

TIMELINE_ROW_PIXELS, TIMELINE_AXES, TIMELINE_LEAST, TIMELINE_MOST = 6.0, 60.0, 180.0, 520.0


def draw_head(run: Run) -> None:
    """What the run is and whether it may be relied on."""
    st.html(words.header(run))
    if said := words.banner(run):
        tone, text = said
        {"error": st.error, "warning": st.warning, "info": st.info}[tone](text)


def draw_judged(run: Run, series: Mapping[str, Series]) -> None:
    """What the run says of itself, and its engines."""
    st.html(words.judged(run) + words.engines_of(run, series))


def draw_curves(runs: Sequence[Run], series: Mapping[str, Series]) -> None:
    """Every measure against the load. Runs of another load model than the first one have no place on its axis."""
    drawn = loadtest_curves.drawn_of(runs)
    made = loadtest_curves.drawings(drawn, series)
    if not made:
        st.info(_no_levels(runs), icon=":material/show_chart:")
        return
    for run in runs:
        if run not in drawn and run.stages:
            load = words.MODES.get(str(run.mode), run.mode)
            text = f"{escape(run.name)} is not drawn: its load is {load}, which can't share an axis with the first run."
            st.html(f'<p class="er-note">{text}</p>')
    if len(drawn) > 1:
        st.html(words.legend(drawn, series))
    with st.grid(min_column_width=420, gap="medium"):
        for drawing in made:
            with st.container():
                _chart(drawing)
    st.html(f'<p class="er-note">{_reading(drawn, series)}</p>')


def _reading(runs: Sequence[Run], series: Mapping[str, Series]) -> str:
    """How the curves are made, and which measures have none."""
    text = (
        "Small hollow marks are single repeats; throughput: line through their mean with its 95 % interval; latency: "
        "line through the middle repeat's p50, shaded up to the worst repeat's p95."
    )
    missing = loadtest_curves.without_values(runs, series)
    if missing and not any(run.active for run in runs):
        text += f" {_missing(runs).capitalize()} here: {', '.join(missing)}."
    if any(
        stage["tokens_source"] == "file" and stage["window_seconds"] is None for run in runs for stage in run.stages
    ):
        text += " An imported file without a steady window gives the throughput of its whole run."
    return text


def _no_levels(runs: Sequence[Run]) -> str:
    if not any(run.stages for run in runs):
        return "No stage has ended yet." if any(run.active for run in runs) else "The run ended before its first stage."
    return (
        "These stages tell no number of users, so that there is no curve to draw; the table below has what they tell."
    )


def _chart(drawing: Drawing) -> None:
    st.vega_lite_chart(
        None,
        {**drawing.spec, "datasets": dict(drawing.datasets)},
        key=f"loadtest-{drawing.key}",
        width="stretch",
        alt=drawing.words,
    )


def draw_differences(runs: Sequence[Run], first: Side, second: Side) -> None:
    """The table of differences between two sides, with intervals."""
    frame = tables.difference_frame(runs, first, second)
    st.subheader("Differences between A and B", anchor=False)
    if frame.empty:
        st.info("A and B have no load in common.")
        return
    st.dataframe(frame, hide_index=True, key="differences", placeholder=_missing(runs), column_config=_figures(frame))


def draw_timeline(runs: Sequence[Run], series: Mapping[str, Series]) -> None:
    """The requests of one chosen stage over time. Raises `StoreError`."""
    more = len(runs) > 1
    stages = {
        (f"{run.name}: " if more else "") + words.stage_title(stage): (run, stage)
        for run in runs
        for stage in run.stages
    }
    if not stages or not any(_has(run, "Requests") for run in runs):
        return
    st.subheader("Requests of a stage", anchor=False)
    name = st.selectbox("Stage", list(stages), key="stage", bind="query-params", width=520)
    run, stage = stages[name or next(iter(stages))]
    found = loadtest_data.requests(run.run_id, int(stage["stage_id"]))
    if not found.num_rows:
        st.info("No request of this stage is stored.")
        return
    mine = series[loadtest_data.owner(stage)]
    bars = loadtest_frames.bars(found, mine.key)
    rows = min(found.num_rows, loadtest_frames.MOST_BARS)
    height = min(TIMELINE_MOST, max(TIMELINE_LEAST, TIMELINE_AXES + rows * TIMELINE_ROW_PIXELS))
    _chart(
        Drawing(
            f"timeline-{mine.place}-{height:g}",
            loadtest_charts.timeline_spec(mine.place, height),
            loadtest_frames.datasets(bars=bars, window=loadtest_frames.window_frame(stage)),
            f"{rows} requests of {name}, each from its sending to its last token.",
        )
    )
    st.html(f'<p class="er-note">{_timeline_words(found.num_rows, stage)}</p>')


def _timeline_words(count: int, stage: Mapping[str, Any]) -> str:
    text = "Light: TTFT; full: decode; grey: due but not sent yet; red: failed or cut off. "
    if stage["window_seconds"] is None:
        text += "This stage has no steady window."
    else:
        text += f"Shaded: the steady window of {formatting.duration(stage['window_seconds'])}."
    most = loadtest_frames.MOST_BARS
    return text + (f" The first {most} of {formatting.count(count)} requests are drawn." if count > most else "")


def draw_used(runs: Sequence[Run], series: Mapping[str, Series]) -> None:
    """Memory, power and energy of each engine at each level. Raises `StoreError`."""
    devices = {str(row["device_id"]): f"GPU {row['index']} {row['name']}" for row in data.records("devices")}
    parts = {run.run_id: data.records("memory_parts", at=run.row["ended"]) for run in runs}
    for run in runs:
        more = f": {run.name}" if len(runs) > 1 else ""
        used = tables.used_frame(run, devices)
        if not used.empty:
            st.subheader(f"Memory and energy{more}", anchor=False)
            if held := words.made_of(run, parts[run.run_id], series):
                st.html(held)
            st.dataframe(used, hide_index=True, key=f"used-{run.key}", placeholder=_missing(runs),
                         column_config=_figures(used))  # fmt: skip
        elif run.row["source"] == loadtest_data.OWN:
            st.html(f'<p class="er-note">Memory and energy{more}: no samples of its engines were taken meanwhile.</p>')


def draw_startup(runs: Sequence[Run]) -> None:
    """How long the engines of the runs took to be ready and to serve their first token. Raises `StoreError`."""
    epochs = frozenset(str(stage["epoch_id"]) for run in runs for stage in run.stages if stage["epoch_id"])
    if not epochs:
        return
    frame = tables.startup_frame(data.records("startups"), epochs)
    st.subheader("Startup of the engines", anchor=False)
    if frame.empty:
        st.html('<p class="er-note">Not measured: the collector did not see these engines start.</p>')
        return
    st.dataframe(frame, hide_index=True, key="startup", placeholder="not known")


def draw_stages(runs: Sequence[Run]) -> None:
    """Every stage as it was measured."""
    frame = tables.stage_frame(runs)
    if frame.empty:
        return
    st.subheader("Stages", anchor=False)
    st.dataframe(frame, hide_index=True, key="stages", placeholder=_missing(runs), column_config=_figures(frame))


def _missing(runs: Sequence[Run]) -> str:
    """What an empty cell means: a file that does not tell is another thing than what could not be measured."""
    return "not measurable" if all(run.row["source"] == loadtest_data.OWN for run in runs) else "not told"


def _figures(frame: pd.DataFrame) -> dict[str, Any]:
    """Numbers with four digits where they are no counts."""
    whole = {"repeat", "succeeded", "failed", "tokens in", "of them cached", "tokens out", "users", "load"}
    return {
        name: st.column_config.NumberColumn(format="localized" if name in whole else "%.4g")
        for name in frame.columns
        if pd.api.types.is_numeric_dtype(frame[name]) or name in whole
    }


_DOWNLOADS = (
    ("Stages", "loadtest_stages"),
    ("Requests", "loadtest_requests"),
    ("Judgements", "loadtest_judgements"),
    ("Memory and energy", "loadtest_resources"),
)


def draw_downloads(runs: Sequence[Run]) -> None:
    """What is stored of each run as CSV, in full precision."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(":small[As CSV:]", width="content")
        for run in runs:
            more = f" of {run.name}" if len(runs) > 1 else ""
            for what, query in _DOWNLOADS:
                if not _has(run, what):
                    continue
                st.download_button(
                    what + more,
                    data=functools.partial(csv, query, run.run_id),
                    file_name=f"engine-room_{query.replace('_', '-')}_{run.run_id}.csv",
                    mime="text/csv",
                    key=f"csv-{what}-{run.key}",
                    on_click="ignore",
                    type="tertiary",
                    icon=":material/download:",
                )


def _has(run: Run, what: str) -> bool:
    """Whether there are rows of a kind. Not every imported file has single requests; its first stage tells."""
    if what != "Requests":
        return bool({"Stages": run.stages, "Judgements": run.judgements, "Memory and energy": run.resources}[what])
    return run.row["source"] == loadtest_data.OWN or (
        bool(run.stages) and loadtest_data.requests(run.run_id, int(run.stages[0]["stage_id"])).num_rows > 0
    )


def csv(query: str, run_id: str) -> bytes:
    """The rows of a run as CSV: every column, ISO 8601 UTC times, full precision."""
    table = data.query(query, run_id=run_id)
    return frames.csv_bytes(table, table.column_names, {})
