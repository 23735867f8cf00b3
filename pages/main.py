"""The router: every page, in its group, and what stands on all of them."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

import access
from views import palette

STYLE = Path(__file__).parent.parent / "views" / "style.css"

st.set_page_config(page_title="Engine Room", page_icon=":material/speed:", layout="wide")
st.html(f"<style>{STYLE.read_text(encoding='utf-8')}\n{palette.style_classes()}</style>")
page = st.navigation(
    {
        "Now": [st.Page("live.py", title="Live", icon=":material/monitoring:", url_path="live", default=True)],
        "Data": [st.Page("sources.py", title="Sources", icon=":material/sensors:", url_path="sources")],
    },
    position="top",
)
if not access.page_may_operate(st.context):
    st.caption("Read-only: this dashboard was opened from another address than the host it runs on.")
page.run()
