"""The states of a page that has nothing to draw: what is missing, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

import settings
from store.protocol import StoreBusyError, StoreError, StoreUnavailableError
from views import data


def store_problem(error: StoreError) -> None:
    """Show why the store gave no answer and what to do about it."""
    match error:
        case StoreUnavailableError():
            st.warning(
                "**No collector answers.** It is not running, or still starting; figures appear here by themselves "
                "as soon as it does.",
                icon=":material/sensors_off:",
            )
            st.caption(str(error))
            st.markdown("Start one for this data folder:")
            st.code(f"ENGINE_ROOM_DATA={settings.load().data} python -m collectors run", language="shell")
        case StoreBusyError():
            st.info(
                f"**The store is busy.** This read got no turn; the next refresh asks again. ({error})",
                icon=":material/hourglass_top:",
            )
        case _:
            st.error(f"**The store could not answer.** {error}", icon=":material/error:")


def no_engine() -> None:
    """Say that no engine was found, what was looked for, and how to start each kind."""
    st.info(
        "**No engine found on this host yet.** The collector looks again every few seconds; "
        "an engine that starts shows up here by itself.",
        icon=":material/search:",
    )
    try:
        looked_for: Sequence[Mapping[str, Any]] = data.health().get("looked_for") or ()
    except StoreError as error:
        st.caption(f"What was looked for is not known: {error}")
        return
    if not looked_for:
        return
    st.markdown("It looked at the processes of this host and at these ports of 127.0.0.1:")
    with st.grid(min_column_width=380, gap="small"):
        for kind in looked_for:
            with st.container(border=True):
                ports = ", ".join(str(port) for port in kind.get("ports", ())) or "none of its own"
                st.markdown(f"**{kind.get('title', kind.get('kind'))}**  \nports {ports}; start one with:")
                st.code(str(kind.get("start_hint", "")), language="shell", wrap_lines=True)
    st.caption(
        "An engine elsewhere, or in a container whose processes can't be seen: name it in engine-room.toml, "
        'for example `[[target]]` with `url = "http://127.0.0.1:8000"`.'
    )


def no_engine_then() -> None:
    """Say that a frozen range ends before the first engine was seen."""
    st.info("**No engine had been seen** by the end of this time range.", icon=":material/history:")


def none_of_the_chosen() -> None:
    """Say that the chosen engines have nothing to show."""
    st.info(
        "**None of the chosen engines was there** by the end of this time range. Choose others above, or none for all.",
        icon=":material/filter_alt_off:",
    )
