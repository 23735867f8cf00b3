"""Compare: two or more windows, each an engine and a time range or a load test, side by side."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from store.protocol import StoreError
from views import compare, compare_controls, compare_windows, empty, picture

st.html(
    '<div class="er-title"><h1>Compare</h1>'
    '<p class="er-note">Is the new build slower? What differs between two engines, two days, two load tests?</p></div>'
)

now = datetime.now(UTC).replace(microsecond=0)
windows, problems = compare_windows.read(st.query_params.get_all("w"), st.query_params.get_all("run"), now)
for problem in problems:
    st.warning(f"**Part of the link was ignored:** {problem}", icon=":material/link_off:")

try:
    known = picture.known_engines()
    engines = {engine_id: series.label for engine_id, series in known.items()}
    windows = compare.resolved(windows, engines)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        add = st.popover("Add a window", icon=":material/add:", key="add-popover")
        share = st.popover("Copy link", icon=":material/link:", on_change="rerun", key="share", disabled=not windows)
    with add:
        compare_controls.draw_form(windows, engines, now)
    if share.open:
        with share:
            st.caption("Shows the same windows to whoever opens it (times are UTC).")
            st.code(compare_windows.link(st.context.url or "", windows), language=None, wrap_lines=True)
    if len(windows) < 2:
        compare.draw_invitation(windows, engines, now)
    if windows:
        compare.draw(windows, known)
except StoreError as error:
    empty.store_problem(error)
