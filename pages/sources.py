"""Sources: where every figure comes from, how well it arrives, and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import streamlit as st

from store.model import EngineState
from store.protocol import StoreError
from views import data, disk, empty, formatting, states, tables

REFRESHES = {"off": 0, "5s": 5, "15s": 15}  # words of the URL, seconds
PERIODS = {"1h": 1, "24h": 24, "7d": 168}  # words of the URL, hours

st.html(
    '<div class="er-title"><h1>Sources</h1>'
    '<p class="er-note">Where every figure comes from, how well it arrives, and what is missing.</p></div>'
)
with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    period = st.segmented_control(
        "Events of the last", list(PERIODS), default="24h", required=True, key="events", bind="query-params"
    )
    refresh = st.segmented_control(
        "Refresh", list(REFRESHES), default="5s", required=True, key="refresh", bind="query-params"
    )


def draw() -> None:
    """Load everything, then draw everything."""
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        sources = data.records("sources")
        quantities = data.records("quantities")
        overview = data.records("overview", at=None)
        (room,) = data.records("disk")
        sizes = data.records("disk_tables") if st.session_state.get("disk_tables_shown") else None
        events = data.records(
            "events", start=now - timedelta(hours=PERIODS[period or "24h"]), end=now + timedelta(seconds=1), limit=500
        )
    except StoreError as error:
        empty.store_problem(error)
        return
    st.html(f'<p class="er-note er-updated">updated {formatting.clock(now, now)}</p>')
    labels = {str(row["engine_id"]): str(row["label"]) for row in overview if row["state"] != EngineState.STOPPED}

    for row in tables.attention(sources):
        look = states.look(row["state"])
        show = st.error if look.tone == "bad" else st.info
        show(f"**{row.get('label') or row['source_id']}: {look.word}.** {row['detail']}")
    disk.warn(room)
    if sources:
        st.dataframe(
            tables.source_frame(sources, now),
            hide_index=True,
            height="content",
            key="sources",
            placeholder="no sample",
            column_config={
                **{
                    name: st.column_config.NumberColumn(format="%.1f")
                    for name in ("took (ms)", "late (ms)", "most late in 10 min (ms)", "every (s)")
                },
                "detail": st.column_config.TextColumn(width="large"),
                "source": st.column_config.TextColumn(width="medium"),
                "found by": st.column_config.TextColumn(width="medium"),
            },
        )
    else:
        st.info("No source has been sampled yet. The first samples arrive a few seconds after the collector starts.")

    st.subheader("Room on the disk", anchor=False)
    disk.draw(room, sizes)

    st.subheader("Quantities that are not there", anchor=False)
    missing = tables.missing_quantities(quantities, labels)
    if not missing:
        told = "Every engine that runs offers all quantities, or was not sampled yet."
        st.markdown(told if labels else "No engine runs now. What one does not offer is shown while it runs.")
    for engine, frame in missing.items():
        with st.expander(f"{engine}: {len(frame)} not there", expanded=len(missing) <= 3):
            st.table(frame.set_index("quantity"))

    st.subheader("Events", anchor=False)
    if events:
        st.dataframe(tables.event_frame(events), hide_index=True, key="event_table")
    else:
        st.markdown(f"Nothing happened in the last {period}.")


st.fragment(draw, run_every=REFRESHES[refresh or "5s"] or None)()
