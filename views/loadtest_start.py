"""What stands between a set-up and its start: what will be sent, how long it takes, what is unfair, and the button."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import streamlit as st

import access
from comparison import configurations
from loadtest import estimate
from loadtest.spec import Spec
from store.protocol import StoreError
from views import data, formatting, loadtest_data
from views.loadtest_data import Row
from views.loadtest_form import Setup

VIEWER = (
    "Load tests are started and stopped, and results imported and deleted, only on the host that the dashboard runs "
    "on: they put its engines to work."
)
EARLIER_RUNS = 5  # newest runs that are looked at for how fast an engine is


def draw(
    setup: Setup, engines: Sequence[Row], labels: Mapping[str, str], runs: Sequence[Row], active: Sequence[Row]
) -> None:
    """The lines above the button, and the button. `engines` are rows of `overview`, `active` runs under way."""
    spec = setup.spec
    chosen = [row for row in engines if row["engine_id"] in setup.engines]
    short = too_short(spec, chosen, labels) if spec is not None else []
    for text in short:
        st.error(f"**Refused.** {text}", icon=":material/error:")
    if spec is not None and chosen:
        st.html(
            f'<p class="er-plan">{_parity(spec, chosen, labels)}</p>'
            f'<p class="er-plan">{_sent(spec, _measured(spec, runs))}</p>'
            + "".join(f'<p class="er-plan">{text}</p>' for text in _others(setup, engines, labels, active))
        )
    # No callback: it would be given what the controls said before the value that was typed just before the click.
    clicked = st.button(
        "Start", key="start", type="primary", icon=":material/play_arrow:", disabled=spec is None or bool(short)
    )
    if clicked and spec is not None and not short:
        _start(spec, setup.name)
        st.rerun()


def _start(spec: Spec, name: str) -> None:
    """Start the run and show it. Asks once more who is asking."""
    if not access.page_may_operate(st.context):
        st.session_state["loadtest_problem"] = f"**Not started.** {VIEWER}"
        return
    name = name or f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    try:
        answer = loadtest_data.command("loadtest_start", spec=spec.model_dump(mode="json"), name=name)
    except StoreError as error:
        st.session_state["loadtest_problem"] = f"**Not started.** {error}"
        return
    st.query_params["run"] = [str(answer["run_id"])]


def too_short(spec: Spec, chosen: Sequence[Row], labels: Mapping[str, str]) -> list[str]:
    """Engines whose context can't hold a prompt with its answer: a sentence each."""
    given = spec.input
    if given.kind == "file":
        return []
    longest = given.tokens if given.distribution == "fixed" else (given.tokens_max or given.tokens)
    answer = spec.output.tokens
    needed = longest + answer
    return [
        f"A prompt of {formatting.count(longest)} and an answer of {formatting.count(answer)} tokens need "
        f"{formatting.count(needed)}; {labels.get(str(row['engine_id']), row['engine_id'])} has a context of "
        f"{formatting.count(row['max_context_tokens'])} a request. {_shorter(row['max_context_tokens'] - answer)}, or "
        "start it with a longer context."
        for row in chosen
        if row["max_context_tokens"] and needed > row["max_context_tokens"]
    ]


def _shorter(left: int) -> str:
    return f"Take prompts of at most {formatting.count(left)}" if left > 0 else "Take shorter answers"


def _parity(spec: Spec, chosen: Sequence[Row], labels: Mapping[str, str]) -> str:
    """What makes a comparison of the chosen engines unfair; named, not forbidden."""
    sides = [configurations.of_epoch(labels.get(str(row["engine_id"]), ""), row) for row in chosen]
    if not all(row["kind"] for row in chosen):
        return "<b>Parity:</b> not known, since nothing is known of an endpoint whose engine is not."
    if len(sides) < 2:
        return "<b>Parity:</b> one engine, nothing to compare with; its curve is measured all the same."
    most = int(max(spec.swept_levels)) if spec.mode == "closed" else None
    aspects = configurations.compare(sides, most)
    unfair = [aspect for aspect in configurations.unfair(aspects) if aspect.name != "prefix cache" or spec.input.cached]
    if not unfair:
        same = [aspect.name for aspect in aspects if aspect.state == "same"]
        return f"<b>Parity:</b> nothing unfair is known. Alike: {escape(', '.join(same)) or 'nothing that is told'}."
    texts = "".join(
        f'<br><span class="er-badge er-warn">unfair</span> {escape(aspect.text or aspect.name)}' for aspect in unfair
    )
    return f"<b>Parity:</b> what differs besides the engine.{texts}"


def _sent(spec: Spec, measured: Mapping[str, Mapping[float, float]]) -> str:
    """What the run sends at most and how long it takes."""
    found = estimate.of(spec, measured)
    parts = [f"{found.stages} stages"]
    if found.requests is None:
        parts.append(f"{formatting.duration(spec.duration_seconds)} each, as many requests as are answered in it")
    else:
        parts.append(f"at most {formatting.count(found.requests)} requests")
        if found.input_tokens is not None:
            parts.append(
                f"{formatting.tokens(found.input_tokens)} prompt and {formatting.tokens(found.output_tokens)} "
                "answer tokens, warm-up left out"
            )
    most = formatting.age(found.most_seconds)
    if found.seconds is not None:
        parts.append(f"about {formatting.age(max(60.0, found.seconds))}, from an earlier run of this workload")
    else:
        parts.append(f"how long is not known before the first run of this workload; it ends after {most} at the latest")
    return f"<b>Sends:</b> {escape(', '.join(parts))}."


def _measured(spec: Spec, runs: Sequence[Row]) -> dict[str, dict[float, float]]:
    """Rates of the newest runs of the same lengths and load model, by engine and level; newer ones hold."""
    same = [row for row in runs if row["source"] == loadtest_data.OWN and _is_alike(spec, row)]
    found: dict[str, dict[float, float]] = {}
    for row in reversed(same[:EARLIER_RUNS]):
        try:
            stages = data.records("loadtest_stages", run_id=str(row["run_id"]))
        except StoreError:
            continue  # an estimate is a courtesy
        for stage in stages:
            level, rate = loadtest_data.level_of(stage), stage["whole_output_tokens_per_second"]
            if stage["engine_id"] and level and rate:
                found.setdefault(str(stage["engine_id"]), {})[float(level)] = float(rate)
    return found


def _is_alike(spec: Spec, row: Row) -> bool:
    asked = loadtest_data.as_object(row["spec"])
    given, output = asked.get("input"), asked.get("output")
    if not isinstance(given, dict) or not isinstance(output, dict):
        return False
    return (
        asked.get("mode") == spec.mode
        and given.get("tokens") == spec.input.tokens
        and given.get("distribution", "fixed") == spec.input.distribution
        and bool(given.get("cached")) == spec.input.cached
        and output.get("tokens") == spec.output.tokens
    )


def _others(setup: Setup, engines: Sequence[Row], labels: Mapping[str, str], active: Sequence[Row]) -> list[str]:
    """Who else is busy on this host, and which run this one would wait for."""
    texts = []
    for row in engines:
        running, name = row["requests_running"], labels.get(str(row["engine_id"]), str(row["engine_id"]))
        if not running:
            continue
        count = f"{formatting.count(running)} request" + ("" if running == 1 else "s")
        if row["engine_id"] in setup.engines:
            texts.append(f"<b>Busy:</b> {escape(name)} is answering {count} of others now; they would be measured too.")
        else:
            texts.append(f"<b>Busy:</b> {escape(name)} is answering {count} on this host meanwhile.")
    mine = set(setup.engines)
    for run in active:
        if mine & set(engines_asked(run)):
            texts.append(f"<b>Waits:</b> {escape(str(run['name']))} is under way on the same engine; this one waits.")
    return texts


def engines_asked(row: Row) -> list[str]:
    """The engine_ids of the endpoints of a run."""
    endpoints: Any = loadtest_data.as_object(row["spec"]).get("endpoints") or []
    return [str(each.get("engine_id")) for each in endpoints if isinstance(each, dict)]
