"""Live: what is running, how fast, and who holds the memory?"""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from store.protocol import StoreError
from views import data, empty, live
from views.urlstate import BadRangeError, Window, frozen_window, live_window, share_link

WINDOWS = {5: "5 min", 15: "15 min", 60: "60 min"}
REFRESHES = {0: "off", 2: "2 s", 5: "5 s", 15: "15 s"}

st.title("Live", anchor=False)
st.html('<p class="er-note">What is running, how fast, and who holds the memory?</p>')

try:
    frozen = frozen_window(st.query_params)
except BadRangeError as error:
    st.warning(
        f"**The link's time range was ignored:** {error}. This is the live view instead.", icon=":material/link_off:"
    )
    frozen = None

try:
    known = live.known_engines()
except StoreError:
    known = {}  # the block below asks again and says why

controls = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
with controls:
    chosen = st.multiselect(
        "Engines", list(known), format_func=lambda key: known[key].label, key="engines", bind="query-params",
        placeholder="all engines", width=320,
    )  # fmt: skip
    minutes = st.segmented_control(
        "Window", list(WINDOWS), format_func=lambda m: WINDOWS[m], default=5, required=True, key="window",
        bind="query-params", disabled=frozen is not None,
    )  # fmt: skip
    refresh = st.segmented_control(
        "Refresh", list(REFRESHES), format_func=lambda s: REFRESHES[s], default=2, required=True, key="refresh",
        bind="query-params", disabled=frozen is not None,
    )  # fmt: skip
    share = st.popover("Copy link", icon=":material/link:", on_change="rerun", key="share")
    updated = st.empty()


def shown_window() -> Window:
    """The frozen range of the link, or the window that ends now."""
    return frozen or live_window(minutes or 5, refresh or 2, datetime.now(UTC))


if share.open:
    with share:
        st.caption("Shows this moment to whoever opens it, however much later (times are UTC).")
        st.code(share_link(st.context.url or "", shown_window(), chosen), language=None, wrap_lines=True)


def draw() -> None:
    """Load everything, then draw everything: a block that waits half-way would flicker."""
    window = shown_window()
    try:
        found = data.load_live(window)
    except StoreError as error:
        updated.empty()
        empty.store_problem(error)
        return
    live.draw_status(updated, window)
    if not found.engines:
        empty.no_engine()
    else:
        live.draw_cards(found, chosen)
    live.draw_charts(found, chosen)


st.fragment(draw, run_every=None if frozen or not refresh else refresh)()
