"""History: what happened, when, and at which load?"""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from store.protocol import StoreError
from views import data, empty, history, history_data, history_picture, picture, timerange
from views.history_charts import GROUPS, PERCENTILES
from views.history_picture import Choice, HistoryPicture
from views.urlstate import BadRangeError, share_link

st.html('<div class="er-title"><h1>History</h1><p class="er-note">What happened, when, and at which load?</p></div>')

now = datetime.now(UTC)
try:
    extent = history_data.extent()
    known = picture.known_engines()
    devices = {str(row["device_id"]): f"GPU {row['index']}" for row in data.records("devices")}
except StoreError as error:
    empty.store_problem(error)
    st.stop()

try:
    shown = timerange.read(st.query_params, extent, now)
except BadRangeError as error:
    st.warning(
        f"**The link's time range was ignored:** {error}. These are the last 24 hours instead.",
        icon=":material/link_off:",
    )
    shown = timerange.preset(timerange.DEFAULT, extent, now)
window = shown.window

# A link may name what is not there any more: it is left out, and said so.
strangers = [name for name in st.query_params.get_all("engines") if name not in known]
gone = [name for name in st.query_params.get_all("devices") if name not in devices.values()]
if strangers or gone:
    st.warning(
        f"**Not in this store, so left out:** {', '.join([*strangers, *gone])}. "
        "An engine or device of another host or of another data folder can't be shown here.",
        icon=":material/link_off:",
    )

with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    history.draw_presets(shown)
    history.draw_fixed(shown)
    history.draw_moves(shown, extent, now)
    share = st.popover("Copy link", icon=":material/link:", on_change="rerun", key="share")
with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    engines = st.multiselect("Engines", list(known), key="engines", bind="query-params", placeholder="all", width=320)
    gpus = (
        st.multiselect(
            "Devices",
            list(dict.fromkeys(devices.values())),
            key="devices",
            bind="query-params",
            placeholder="all",
            width=220,
        )
        if devices
        else []
    )
    groups = st.multiselect(
        "Charts", GROUPS, key="show", bind="query-params",
        placeholder="all", width=280,
    )  # fmt: skip
    percentiles = st.pills(
        "Percentiles", list(PERCENTILES), selection_mode="multi", default=["p50", "p95"], key="percentiles",
        bind="query-params",
    )  # fmt: skip

choice = Choice(
    groups=tuple(name for name in GROUPS if not groups or name in groups),
    engines=tuple(sorted(engines)),
    devices=tuple(sorted(device_id for device_id, name in devices.items() if name in gpus)),
    percentiles=tuple(name for name in PERCENTILES if name in percentiles),
)
if share.open:
    with share:
        st.caption("Shows this range to whoever opens it, however much later (times are UTC).")
        others = {"devices": gpus, "show": groups, "percentiles": percentiles}
        st.code(share_link(st.context.url or "", window, engines, others), language=None, wrap_lines=True)


def look() -> HistoryPicture:
    """What is drawn, made once for all who look at the same."""
    return history_picture.picture(window, choice, known, len(devices))


try:
    drawn = look()
except StoreError as error:
    empty.store_problem(error)
    st.stop()
if drawn.found.empty:
    history.draw_no_data(window, extent, now)
else:
    history.draw_charts(drawn, window)
    history.draw_events(drawn)
    history.draw_downloads(look, choice.groups, window)
