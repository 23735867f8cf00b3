"""The results of load tests: curves, differences, the requests of a stage, what the engines used, tables and CSV."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from store.protocol import StoreError
from views import data, empty, formatting, frames, loadtest_charts, loadtest_data, loadtest_frames
from views import loadtest_tables as tables
from views import loadtest_words as words
from views.loadtest_charts import GOODPUT, THROUGHPUT, TPOT, TTFT, Layout, Measure
from views.loadtest_data import Run
from views.loadtest_tables import Side
from views.palette import Series

# measure, the SLO that belongs to it, factor from the SLO's seconds to the unit of the chart
_CURVES: tuple[tuple[Measure, str | None, float], ...] = (
    (THROUGHPUT, None, 1.0),
    (TTFT, "ttft_seconds", 1.0),
    (TPOT, "tpot_seconds", 1000.0),
    (GOODPUT, None, 1.0),
    (loadtest_charts.ENERGY, None, 1.0),
)
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
    drawn = [run for run in runs if run.mode == runs[0].mode]
    points = loadtest_frames.points(drawn, series)
    if points.empty:
        st.info(_no_levels(runs), icon=":material/show_chart:")
        return
    for run in runs:
        if run not in drawn and run.stages:
            load = words.MODES.get(str(run.mode), run.mode)
            text = f"{escape(run.name)} is not drawn: its load is {load}, which can't share an axis with the first run."
            st.html(f'<p class="er-note">{text}</p>')
    curve = loadtest_frames.curve(points)
    load = words.load_heading(str(drawn[0].mode))
    layout = Layout(
        max(each.place for each in series.values()) + 1,
        tuple(sorted({float(level) for level in points["x"]} | _asked(drawn))),
        load,
        len(drawn),
    )
    if len(drawn) > 1:
        st.html(words.legend(drawn, series))
    slo = drawn[0].spec.get("slo") or {}
    shown = [(measure, limit, factor) for measure, limit, factor in _CURVES if curve[measure.key].notna().any()]
    with st.grid(min_column_width=420, gap="medium"):
        for number, (measure, limit, factor) in enumerate(shown):
            with st.container():
                line = loadtest_frames.slo_frame(slo.get(limit) if limit else None, measure.unit, factor)
                _chart(
                    loadtest_charts.level_spec(measure, layout),
                    f"{measure.key}-{len(drawn)}",
                    f"{measure.title} in {measure.unit} against {load}. {_in_words(curve, measure)}",
                    curve=curve, points=points, slo=line,
                )  # fmt: skip
            if number == 0 and curve[loadtest_charts.USER].notna().any():
                with st.container():
                    _chart(
                        loadtest_charts.pareto_spec(layout),
                        f"pareto-{len(drawn)}",
                        "Throughput of all users against that of one user, one point a level.",
                        curve=curve,
                    )
    st.html(f'<p class="er-note">{_reading([measure for measure, *_ in shown], drawn)}</p>')


def _asked(runs: Sequence[Run]) -> set[float]:
    """The levels that runs under way have yet to measure: the axis has room for them from the beginning."""
    asked = [level for run in runs if run.active for level in run.spec.get("levels") or ()]
    return {float(level) for level in asked if isinstance(level, int | float) and level > 0}


def _reading(shown: Sequence[Measure], runs: Sequence[Run]) -> str:
    """How the curves are made, and which measures have none."""
    text = (
        "Small hollow marks are single repeats; throughput: line through their mean with its 95 % interval; latency: "
        "line through the middle repeat's p50, shaded up to the worst repeat's p95."
    )
    missing = [measure.title for measure, *_ in _CURVES if measure not in shown]
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


def _in_words(curve: pd.DataFrame, measure: Measure) -> str:
    parts = []
    for (_, label), group in curve.groupby(["r", "label"], sort=False):
        pairs = (
            f"{formatting.number(value)} at {level:g}"
            for level, value in zip(group["x"], group[measure.key], strict=True)
            if value is not None and formatting.known(float(value))
        )
        parts.append(f"{label}: {', '.join(pairs)}")
    return "; ".join(parts)


def _chart(spec: Mapping[str, Any], key: str, alt: str, **found: pd.DataFrame) -> None:
    st.vega_lite_chart(
        None,
        {**spec, "datasets": loadtest_frames.datasets(**found)},
        key=f"loadtest-{key}",
        width="stretch",
        alt=alt,
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
    """The requests of one chosen stage over time."""
    more = len(runs) > 1
    stages = {
        (f"{run.name}: " if more else "") + words.stage_title(stage): (run, stage)
        for run in runs
        for stage in run.stages
    }
    if not stages or all(run.row["source"] != loadtest_data.OWN for run in runs):
        return
    st.subheader("Requests of a stage", anchor=False)
    name = st.selectbox("Stage", list(stages), key="stage", bind="query-params", width=520)
    run, stage = stages[name or next(iter(stages))]
    try:
        found = loadtest_data.requests(run.run_id, int(stage["stage_id"]))
    except StoreError as error:
        empty.store_problem(error)
        return
    if not found.num_rows:
        st.info("No request of this stage is stored.")
        return
    mine = series[loadtest_data.owner(stage)]
    bars = loadtest_frames.bars(found, mine.key)
    rows = min(found.num_rows, loadtest_frames.MOST_BARS)
    height = min(TIMELINE_MOST, max(TIMELINE_LEAST, TIMELINE_AXES + rows * TIMELINE_ROW_PIXELS))
    _chart(
        loadtest_charts.timeline_spec(mine.place, height),
        f"timeline-{mine.place}-{height:g}",
        f"{rows} requests of {name}, each from its sending to its last token.",
        bars=bars,
        window=loadtest_frames.window_frame(stage),
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


def draw_used(runs: Sequence[Run]) -> None:
    """Memory, power and energy of each engine at each level."""
    try:
        devices = {str(row["device_id"]): f"GPU {row['index']} {row['name']}" for row in data.records("devices")}
        parts = {run.run_id: data.records("memory_parts", at=run.row["ended"]) for run in runs}
    except StoreError as error:
        empty.store_problem(error)
        return
    for run in runs:
        more = f": {run.name}" if len(runs) > 1 else ""
        used = tables.used_frame(run, devices)
        if not used.empty:
            st.subheader(f"Memory and energy{more}", anchor=False)
            if held := words.made_of(run, parts[run.run_id]):
                st.html(held)
            st.dataframe(used, hide_index=True, key=f"used-{run.key}", placeholder=_missing(runs),
                         column_config=_figures(used))  # fmt: skip
        elif run.row["source"] == loadtest_data.OWN:
            st.html(f'<p class="er-note">Memory and energy{more}: no samples of its engines were taken meanwhile.</p>')


def draw_startup(runs: Sequence[Run]) -> None:
    """How long the engines of the runs took to be ready and to serve their first token."""
    epochs = frozenset(str(stage["epoch_id"]) for run in runs for stage in run.stages if stage["epoch_id"])
    if not epochs:
        return
    try:
        frame = tables.startup_frame(data.records("startups"), epochs)
    except StoreError as error:
        empty.store_problem(error)
        return
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
)


def draw_downloads(runs: Sequence[Run]) -> None:
    """Stages and requests of each run as CSV, in full precision."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(":small[As CSV:]", width="content")
        for run in runs:
            more = f" of {run.name}" if len(runs) > 1 else ""
            for what, query in _DOWNLOADS:
                if what == "Requests" and run.row["source"] != loadtest_data.OWN:
                    continue
                st.download_button(
                    what + more,
                    data=functools.partial(csv, query, run.run_id),
                    file_name=f"engine-room_loadtest-{what.lower()}_{run.run_id}.csv",
                    mime="text/csv",
                    key=f"csv-{what}-{run.key}",
                    on_click="ignore",
                    type="tertiary",
                    icon=":material/download:",
                )


def csv(query: str, run_id: str) -> bytes:
    """The stages or requests of a run as CSV: every column, ISO 8601 UTC times, full precision."""
    table = data.query(query, run_id=run_id)
    return frames.csv_bytes(table, table.column_names, {})
