"""How far the runs under way are, for everybody who looks: told by the collector, so that a page can be left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape
from typing import Any

import streamlit as st

import access
from store.protocol import StoreError
from views import formatting, loadtest_data, loadtest_runs, loadtest_start

Status = Mapping[str, Any]


def draw(status: Status, shown: Collection[str], *, operator: bool) -> None:
    """One run: its bar, where it is, and the buttons that show it and, for operators, stop it. `shown`: on the page."""
    run_id = str(status["run_id"])
    with st.container(border=True, key=f"progress-{run_id}"):
        if status["state"] == "waiting":
            text = escape(str(status.get("detail") or "waits for another run on one of its engines to end"))
        else:
            st.progress(share(status))
            text = words(status)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.html(f'<p class="er-plan"><b>{escape(str(status["name"]))}</b> {text}</p>', width="stretch")
            if run_id not in shown:
                st.button("Show", key=f"show-{run_id}", icon=":material/show_chart:", on_click=loadtest_runs.show,
                          args=([run_id],))  # fmt: skip
            if operator:
                st.button("Stop", key=f"stop-{run_id}", icon=":material/stop:", on_click=_stop, args=(run_id,),
                          help="What was measured until now stays.")  # fmt: skip


def share(status: Status) -> float:
    """How much of the run is done, 0..1: stages that ended, and the requests of this one."""
    stages = status.get("stages") or 0
    if not stages:
        return 0.0
    planned, done = status.get("planned") or 0, status.get("done") or 0
    within = min(1.0, done / planned) if planned else 0.0
    return min(1.0, ((status.get("stage") or 0) + within) / stages)


def words(status: Status) -> str:
    """Where the run is, as HTML: stage, engine and load, requests, rate, errors, time left."""
    stage, planned = status.get("stage"), status.get("planned")
    parts = []
    if stage is None or not status.get("stages"):
        parts.append("asks its engines what they are")
    else:
        parts.append(f"stage {int(stage) + 1} of {status['stages']}")
    if status.get("label"):
        level = status.get("level")
        parts.append(f"{escape(str(status['label']))} \N{MULTIPLICATION SIGN} {level:g}" if level else
                     escape(str(status["label"])))  # fmt: skip
    if status.get("phase") == "warm-up":
        parts.append("warming up")
    elif status.get("done") is not None:
        of = f" of {formatting.count(planned)}" if planned else ""
        parts.append(f"{formatting.count(status['done'])}{of} requests")
    rate = status.get("rate_tokens_per_second")
    if rate is not None:
        parts.append(f"{formatting.rate(rate)} tok/s")
    failed = status.get("failed")
    if failed is not None:
        parts.append(f"{formatting.count(failed)} error" + ("" if failed == 1 else "s"))
    left = status.get("seconds_left")
    if left is not None:
        parts.append(f"{formatting.age(left)} left" if left >= 1 else "nearly done")
    return " \N{MIDDLE DOT} ".join(parts)


def _stop(run_id: str) -> None:
    """Stop a run. Asks once more who is asking."""
    if not access.page_may_operate(st.context):
        st.session_state["loadtest_problem"] = f"**Not stopped.** {loadtest_start.VIEWER}"
        return
    try:
        loadtest_data.command("loadtest_stop", run_id=run_id)
    except StoreError as error:
        st.session_state["loadtest_problem"] = f"**Not stopped.** {error}"
