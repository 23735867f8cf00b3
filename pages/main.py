"""The router: every page, and what stands on all of them."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

import access
from views import palette

VIEWS = Path(__file__).parent.parent / "views"

# The icon is a file of ours: a named Material icon would be fetched from another host.
st.set_page_config(page_title="Engine Room", page_icon=str(VIEWS / "icon.svg"), layout="wide")
st.html(f"<style>{(VIEWS / 'style.css').read_text(encoding='utf-8')}\n{palette.style_classes()}</style>")
st.logo(str(VIEWS / "logo.svg"), size="medium")
page = st.navigation(
    [
        st.Page("live.py", title="Live", icon=":material/monitoring:", default=True),
        st.Page("history.py", title="History", icon=":material/history:", url_path="history"),
        st.Page("compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
        st.Page("load_test.py", title="Load test", icon=":material/speed:", url_path="loadtest"),
        st.Page("memory.py", title="Memory", icon=":material/memory:", url_path="memory"),
        st.Page("reports.py", title="Reports", icon=":material/summarize:", url_path="reports"),
        st.Page("sources.py", title="Sources", icon=":material/sensors:", url_path="sources"),
    ],
    position="top",
)
if not access.page_may_operate(st.context):
    st.caption("Read-only: this dashboard was opened from another address than the host it runs on.")
page.run()
