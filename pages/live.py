"""Live: what is running, how fast, and who holds the memory?"""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from store.protocol import StoreError
from views import empty, live, picture
from views.urlstate import BadRangeError, Window, frozen_window, live_window, share_link

# The words of the URL (?window=15m&refresh=5s) and what they mean, in minutes and in seconds.
WINDOWS = {"5m": 5, "15m": 15, "60m": 60}
REFRESHES = {"off": 0, "2s": 2, "5s": 5, "15s": 15}

st.html(
    '<div class="er-title"><h1>Live</h1>'
    '<p class="er-note">What is running, how fast, and who holds the memory?</p></div>'
)

try:
    frozen = frozen_window(st.query_params)
except BadRangeError as error:
    st.warning(
        f"**The link's time range was ignored:** {error}. This is the live view instead.", icon=":material/link_off:"
    )
    frozen = None

try:
    known = picture.known_engines()
except StoreError:
    known = {}  # the block below asks again and says why


def leave_frozen() -> None:
    """Drop the time range from the URL."""
    for name in ("from", "to"):
        st.query_params.pop(name, None)


with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    # Without a store the link's own engines stand in, so that the choice outlives a collector that is still starting.
    options = list(known) or st.query_params.get_all("engines")
    chosen = st.multiselect("Engines", options, key="engines", bind="query-params", placeholder="all", width=320)
    if frozen is None:
        window_name = st.segmented_control(
            "Window", list(WINDOWS), default="5m", required=True, key="window", bind="query-params"
        )
        refresh_name = st.segmented_control(
            "Refresh", list(REFRESHES), default="2s", required=True, key="refresh", bind="query-params"
        )
        minutes, refresh = WINDOWS[window_name or "5m"], REFRESHES[refresh_name or "2s"]
    else:
        st.button("Back to live", icon=":material/play_arrow:", on_click=leave_frozen, key="back")
        minutes, refresh = 5, 0
    share = st.popover("Copy link", icon=":material/link:", on_change="rerun", key="share")


def shown_window() -> Window:
    """The frozen range of the link, or the window that ends now."""
    return frozen or live_window(minutes, refresh or 2, datetime.now(UTC))


if share.open:
    with share:
        st.caption("Shows this moment to whoever opens it, however much later (times are UTC).")
        st.code(share_link(st.context.url or "", shown_window(), chosen), language=None, wrap_lines=True)


def draw() -> None:
    """Load everything, then draw everything: a block that waits half-way would flicker."""
    window = shown_window()
    try:
        shown = picture.picture(window, chosen)
        engines_now = picture.known_engines()
    except StoreError as error:
        empty.store_problem(error)
        return
    if window.live and engines_now.keys() != known.keys():
        st.rerun()  # an engine came: the choice above has to offer it
    live.draw_status(window)
    if not shown.found.engines:
        empty.no_engine() if window.live else empty.no_engine_then()
    elif not shown.cards and not shown.old_count:
        empty.none_of_the_chosen()
    live.draw_cards(shown)
    live.draw_charts(shown)


st.fragment(draw, run_every=refresh or None)()
live.draw_downloads(lambda: picture.picture(shown_window(), chosen))
