"""Reports: the evidence as one file to send, and the rows behind it."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

import access
from store.protocol import StoreError
from views import compare, compare_windows, data, empty, picture, reports

st.html(
    '<div class="er-title"><h1>Reports</h1>'
    '<p class="er-note">What do I send to those who decide, and how do they check it?</p></div>'
)
for key, show in (("report_problem", st.error), ("report_done", st.success)):
    if text := st.session_state.pop(key, None):
        show(text)
operator = access.page_may_operate(st.context)
now = datetime.now(UTC).replace(microsecond=0)
report_id = st.query_params.get("report")

try:
    row = reports.saved(report_id) if report_id else None
    if report_id and row is None:
        st.warning(
            "**There is no such report here.** It was deleted, or the link is of another host.",
            icon=":material/link_off:",
        )
    if row is not None:
        reports.draw_saved(row, operator=operator)
    else:
        windows, problems = compare_windows.read(st.query_params.get_all("w"), (), now)
        for problem in problems:
            st.warning(f"**Part of the link was ignored:** {problem}", icon=":material/link_off:")
        engines = {engine_id: series.label for engine_id, series in picture.known_engines().items()}
        windows = compare.resolved(windows, engines)
        document = reports.draw_builder(windows, engines, now)
        if document is not None:
            reports.draw_save(document, operator=operator)
            reports.draw_report(document, "engine-room_report")
        reports.draw_list(data.records("reports"))
except StoreError as error:
    empty.store_problem(error)
