"""Load test: which engine is faster at my concurrency?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

import access
from store.protocol import StoreError
from views import (
    data,
    empty,
    loadtest_data,
    loadtest_form,
    loadtest_progress,
    loadtest_results,
    loadtest_runs,
    loadtest_start,
    loadtest_statement,
)
from views.loadtest_data import Run
from views.palette import Series

REFRESH_SECONDS = 2

st.html(
    '<div class="er-title"><h1>Load test</h1>'
    '<p class="er-note">Which engine is faster at my concurrency, and what do its users feel meanwhile?</p></div>'
)
for key, show in (("loadtest_problem", st.error), ("loadtest_done", st.success)):
    if text := st.session_state.pop(key, None):
        show(text)
operator = access.page_may_operate(st.context)


def answers() -> None:
    """Come back by itself when the collector does."""
    try:
        loadtest_data.runs()
    except StoreError:
        return
    st.rerun()


try:
    rows = loadtest_data.runs()
    active = loadtest_data.under_way()
    overview = sorted(data.records("overview", at=None), key=lambda row: (row["first_seen"], row["engine_id"]))
    known, gone = loadtest_runs.chosen(rows)
    shown = [loadtest_data.load(row, place) for place, row in enumerate(known)]
    series = loadtest_data.series_of(shown)
except StoreError as error:
    empty.store_problem(error)
    st.fragment(answers, run_every=REFRESH_SECONDS)()
    st.stop()

engines = loadtest_data.candidates(overview)
labels = {str(row["engine_id"]): str(row["label"]) for row in engines}
loadtest_runs.draw_gone(gone)


def draw_set_up() -> None:
    """The form of a new run, for whom may start one."""
    if not operator:
        st.info(f"**Read-only.** {loadtest_start.VIEWER} Everybody can read them.", icon=":material/lock:")
        return
    if not any(row["state"] in loadtest_data.CAN_ANSWER for row in engines):
        empty.no_engine()
    if ignored := loadtest_form.ignored_of_link():
        st.warning(
            f"**The link's {', '.join(ignored)} was ignored:** there is no such choice.", icon=":material/link_off:"
        )
    setup = loadtest_form.draw(engines, labels)
    loadtest_start.draw(setup, engines, labels, rows, active_rows())


def active_rows() -> list[loadtest_data.Row]:
    """The rows of the runs under way."""
    ids = {str(status["run_id"]) for status in active}
    return [row for row in rows if str(row["run_id"]) in ids]


def draw_heads(runs: Sequence[Run], colours: Mapping[str, Series]) -> None:
    """What each run is. Of a single one that is over, the statement comes before what it says of itself."""
    for run in runs:
        loadtest_results.draw_head(run)
        if len(runs) > 1 or run.active:
            loadtest_results.draw_judged(run, colours)


def draw_under_way() -> None:
    """How far the runs are, and the curves of the shown one as they grow."""
    try:
        now = loadtest_data.under_way()
        fresh = {str(row["run_id"]): row for row in loadtest_data.runs()}
        growing = [loadtest_data.load(fresh.get(run.run_id, run.row), at) for at, run in enumerate(shown)]
        colours = loadtest_data.series_of(growing)
    except StoreError as error:
        empty.store_problem(error)
        return
    ids = [{status["run_id"] for status in statuses} for statuses in (now, active)]
    if ids[0] != ids[1] or any(new.active != run.active for new, run in zip(growing, shown, strict=True)):
        st.rerun()  # one began or ended: the rest of the page has to follow
    for status in now:
        loadtest_progress.draw(status, [run.run_id for run in shown], operator=operator)
    if any(run.active for run in growing):
        draw_heads(growing, colours)
        loadtest_results.draw_curves(growing, colours)
        loadtest_results.draw_stages(growing)


def draw_results() -> None:
    """All of the runs that are over: the statement first. Raises `StoreError`."""
    draw_heads(shown, series)
    sides = loadtest_statement.draw(shown)
    if len(shown) == 1:
        loadtest_results.draw_judged(shown[0], series)
    loadtest_results.draw_curves(shown, series)
    if sides is not None:
        loadtest_results.draw_differences(shown, *sides)
    loadtest_results.draw_timeline(shown, series)
    loadtest_results.draw_used(shown, series)
    loadtest_results.draw_startup(shown)
    loadtest_results.draw_stages(shown)
    loadtest_results.draw_downloads(shown)


if not shown:
    draw_set_up()
if rows:
    loadtest_runs.draw_choice(rows, known)
growing = any(run.active for run in shown)
if active or growing:
    st.fragment(draw_under_way, run_every=REFRESH_SECONDS)()
if shown and not growing:
    try:
        draw_results()
    except StoreError as error:
        empty.store_problem(error)
if operator:
    loadtest_runs.draw_delete(shown)
if not shown:
    st.subheader("Past runs", anchor=False)
    loadtest_runs.draw_list(rows)
    if operator:
        loadtest_runs.draw_import()
