"""The blocks of the Reports page: what a report is made of, its preview and files, and the saved ones."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

import access
import settings
from store.protocol import StoreError
from views import (
    compare_controls,
    compare_windows,
    data,
    formatting,
    loadtest_data,
    loadtest_runs,
    report_contents,
    report_html,
    report_zip,
)
from views.compare_windows import Chosen, literal
from views.report_contents import Contents
from views.report_document import (
    MOST_NOTE_CHARACTERS,
    MOST_RUNS,
    MOST_TITLE_CHARACTERS,
    BadReportError,
    ReportDocument,
    checked,
    from_json,
)

Row = Mapping[str, Any]
OPERATORS = "Reports are saved and deleted only from the host that the dashboard runs on."
DEFAULT_TITLE = "Inference engines compared"
PREVIEW_PIXELS = 900
FIELDS = ("title", "note", "scrub", "raw")  # keys of the form; windows and load tests are `w` and `test` of the link


@st.cache_resource(ttl=60, max_entries=16, show_spinner=False)
def _made(data_folder: str, document: ReportDocument, minute: int) -> tuple[Contents, str]:
    """A report and its HTML, made once a minute at most. `data_folder` and `minute` are only part of the key."""
    contents = report_contents.load(document, datetime.now(UTC).replace(microsecond=0))
    return contents, report_html.document(contents)


def made(document: ReportDocument) -> tuple[Contents, str]:
    """A report as it is now, with its HTML. Raises `StoreError` and `BadReportError`."""
    return _made(str(settings.load().data), document, int(datetime.now(UTC).timestamp()) // 60)


def draw_builder(windows: Sequence[Chosen], engines: Mapping[str, str], now: datetime) -> ReportDocument | None:
    """What a new report is made of; the document, or None while nothing is chosen. Raises `StoreError`."""
    runs = {str(row["run_id"]): row for row in loadtest_data.runs() if row["state"] not in loadtest_data.ACTIVE}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        title = st.text_input(
            "Title", DEFAULT_TITLE, MOST_TITLE_CHARACTERS, key="title", bind="query-params", width=420
        )
        chosen = _draw_runs(runs)
        with st.popover("Add a window", icon=":material/add:", key="add-popover"):
            compare_controls.draw_form(windows, engines, now)
    if windows:
        compare_controls.draw_windows(windows, [_named(window, engines) for window in windows], {})
    note = st.text_area(
        "Note", "", max_chars=MOST_NOTE_CHARACTERS, key="note", bind="query-params", height=80,
        placeholder="what was asked, what is to be decided",
    )  # fmt: skip
    with st.container(horizontal=True, gap="medium"):
        scrub = st.checkbox(
            "Hide host names, addresses and folders", key="scrub", bind="query-params",
            help="They become host-1, folder-1 and so on, in the report and in every file of its ZIP.",
        )  # fmt: skip
        raw = st.checkbox(
            "Every sample in the ZIP", key="raw", bind="query-params",
            help="Beside the rows behind the charts: the samples and histograms of each window as they were stored.",
        )  # fmt: skip
    if scrub:
        st.caption(
            "Title, note, and names of load tests and configured engines stay as they were typed: see that they name "
            "nobody before you hand the report on."
        )
    if not windows and not chosen:
        _draw_invitation(engines, now)
        return None
    return ReportDocument(
        title.strip() or DEFAULT_TITLE, note, tuple(compare_windows.texts(windows)), tuple(chosen), scrub, raw
    )


def _draw_runs(runs: Mapping[str, Row]) -> list[str]:
    """The load tests of the report. The link decides, by their ids; the control follows it."""
    asked = list(dict.fromkeys(st.query_params.get_all("test")))
    known = [run_id for run_id in asked if run_id in runs][:MOST_RUNS]
    if st.session_state.get("report_link") != asked:
        st.session_state.update(report_link=asked, report_runs=known)
    st.multiselect(
        "Load tests", list(runs), format_func=lambda run_id: loadtest_runs.title(runs[run_id]), key="report_runs",
        max_selections=MOST_RUNS, placeholder="none", width=420, on_change=_choose_runs,
    )  # fmt: skip
    for run_id in asked:
        if run_id not in runs:
            loadtest_runs.draw_gone([run_id])
    return known


def _choose_runs() -> None:
    chosen = st.session_state["report_runs"]
    st.query_params.pop("test", None)
    if chosen:
        st.query_params["test"] = chosen


def _named(window: Chosen, engines: Mapping[str, str]) -> str:
    """A window in words, without loading it."""
    if isinstance(window, compare_windows.EngineWindow):
        name = engines.get(window.engine_id, window.engine_id)
        return f"{name}, {compare_windows.span_words(window.start, window.end)}"
    return f"{window.label} at {window.level}, load test {window.run_id}"


def _draw_invitation(engines: Mapping[str, str], now: datetime) -> None:
    st.info(
        "**Choose what the report shows:** load tests, or windows of engines and time.", icon=":material/summarize:"
    )
    with st.container(horizontal=True, gap="small"):
        for name, found in compare_controls.quick_starts(engines, now).items():
            st.button(name, key=f"quick-{name}", on_click=compare_controls.show, args=(found,))


def draw_report(document: ReportDocument, file_stem: str) -> bool:
    """The files and the preview of a report. False when it can't be made; the page then says why."""
    try:
        checked(document)
        with st.spinner("Loading figures and drawing charts"):
            contents, html = made(document)
    except BadReportError as error:
        st.warning(literal(str(error)), icon=":material/error:")
        return False
    size = formatting.size(len(html.encode()))
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        _button(f"HTML ({size})", lambda: html.encode(), f"{file_stem}.html", "text/html")
        zipped = functools.partial(report_zip.zip_bytes, contents, html, contents.scrub)
        _button("ZIP: HTML and CSV", zipped, f"{file_stem}.zip", "application/zip")
        if contents.sides:
            figures = functools.partial(report_zip.figures_bytes, contents)
            _button("Figures as one CSV", figures, f"{file_stem}_figures.csv", "text/csv")
    st.caption("One file that needs no network; prints on A4. The ZIP has the rows behind every chart and table.")
    st.iframe(html, height=PREVIEW_PIXELS)
    return True


def _button(name: str, make: Any, file: str, mime: str) -> None:
    st.download_button(
        name, data=make, file_name=file, mime=mime, key=f"get-{mime}-{name[:4]}", on_click="ignore",
        icon=":material/download:",
    )  # fmt: skip


def draw_save(document: ReportDocument, *, operator: bool) -> None:
    """Keep a report under its title, so that others find it."""
    if st.button(
        "Save", icon=":material/save:", key="save", disabled=not operator, help=None if operator else OPERATORS
    ):
        saved = _save(document)
        if saved is None:
            st.error(st.session_state.pop("report_problem"), icon=":material/error:")
        else:
            open_saved(saved)
            st.rerun()


def _save(document: ReportDocument) -> str | None:
    if not access.page_may_operate(st.context):
        st.session_state["report_problem"] = f"**Not saved.** {OPERATORS}"
        return None
    try:
        answer = data.command("report_save", name=document.title, document=document.to_json())
    except StoreError as error:
        st.session_state["report_problem"] = f"**Not saved.** {literal(str(error))}"
        return None
    return str(answer["report_id"])


def open_saved(report_id: str) -> None:
    """Put a saved report into the link, and nothing else."""
    st.query_params.from_dict({"report": report_id})


def saved(report_id: str) -> Row | None:
    """A saved report; None when there is none (any more). Raises `StoreError`."""
    rows = data.records("report", report_id=report_id)
    return rows[0] if rows else None


def document_of(row: Row) -> ReportDocument:
    """The document of a saved report. Raises `BadReportError`."""
    try:
        content = json.loads(row["document"])
    except ValueError as error:
        raise BadReportError("The saved report can't be read: it is no JSON. Delete it and make it anew.") from error
    return from_json(content if isinstance(content, dict) else {})


def draw_saved(row: Row, *, operator: bool) -> None:
    """One saved report as it is answered now."""
    st.html(
        f'<div class="er-run"><h2>{escape(str(row["name"]))}</h2></div><p class="er-facts">saved '
        f"{formatting.clock(row['ts'])}; its figures are read anew from what is stored now</p>"
    )
    try:
        document = document_of(row)
    except BadReportError as error:
        st.error(literal(str(error)), icon=":material/error:")
        document = None
    with st.container(horizontal=True, gap="small"):
        st.button("New report", icon=":material/add:", key="new", on_click=_edit, args=(None,))
        if document is not None:
            st.button("Use as a beginning", icon=":material/edit:", key="edit", on_click=_edit, args=(document,))
        with st.popover("Copy link", icon=":material/link:", key="share"):
            st.caption("Shows this report to whoever opens it.")
            st.code(_link(st.context.url or "", str(row["report_id"])), language=None, wrap_lines=True)
        if st.button(
            "Delete", icon=":material/delete:", key="delete", type="tertiary", disabled=not operator,
            help=None if operator else OPERATORS,
        ):  # fmt: skip
            _confirm(row)
    if document is not None:
        draw_report(document, f"engine-room_report_{row['report_id']}")


def _edit(document: ReportDocument | None) -> None:
    """Leave the saved report for the form, filled from `document`; without one, as it is at first."""
    st.query_params.clear()
    for name in FIELDS:
        st.session_state.pop(name, None)
    if document is None:
        return
    for name, ids in (("w", document.windows), ("test", document.runs)):
        if ids:
            st.query_params[name] = list(ids)
    values = (document.title, document.note, document.scrub, document.raw)
    st.session_state.update(dict(zip(FIELDS, values, strict=True)))


@st.dialog("Delete this report?")
def _confirm(row: Row) -> None:
    st.markdown(f"**{literal(str(row['name']))}**. What it was made of stays; the link to it will lead nowhere.")
    with st.container(horizontal=True):
        if st.button("Delete", type="primary", key="confirm-delete", on_click=_delete, args=(row,)):
            st.rerun()
        if st.button("Keep", key="confirm-keep"):
            st.rerun()


def _delete(row: Row) -> None:
    if not access.page_may_operate(st.context):
        st.session_state["report_problem"] = f"**Not deleted.** {OPERATORS}"
        return
    try:
        gone = data.command("report_delete", report_id=str(row["report_id"]))["deleted"]
    except StoreError as error:
        st.session_state["report_problem"] = f"**Not deleted.** {literal(str(error))}"
        return
    name = literal(str(row["name"]))
    st.session_state["report_done"] = (
        f"{name} is deleted." if gone else f"{name} was gone already: somebody else deleted it."
    )
    st.query_params.clear()


def draw_list(rows: Sequence[Row]) -> None:
    """The saved reports, the newest first; each name opens it."""
    st.subheader("Saved reports", anchor=False)
    if not rows:
        st.markdown("No report has been saved yet.")
        return
    for row in rows:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.button(
                literal(str(row["name"])), key=f"open-{row['report_id']}", type="tertiary", on_click=open_saved,
                args=(str(row["report_id"]),),
            )  # fmt: skip
            st.caption(f"saved {formatting.clock(row['ts'])}")


def _link(page_url: str, report_id: str) -> str:
    parts = urlsplit(page_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", urlencode({"report": report_id}), ""))
