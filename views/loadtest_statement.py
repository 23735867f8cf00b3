"""What the runs say in a sentence: where one engine overtakes the other, how sure that is, and how it is at a load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import streamlit as st

from comparison import crossover
from comparison.curves import Curve, Measure, curve_of
from views import loadtest_data, loadtest_tables, loadtest_words
from views.loadtest_data import Row, Run
from views.loadtest_tables import Side

USERS = 8
# what is compared at a load, and how a stage tells it
_FIGURES: tuple[tuple[str, str, Callable[[Row], float | None]], ...] = (
    ("output tokens per second", "higher", loadtest_data.throughput_of),
    ("TTFT (p50)", "lower", lambda stage: stage["ttft_p50_seconds"]),
    ("TPOT (p50)", "lower", lambda stage: stage["tpot_p50_seconds"]),
)


def draw(runs: Sequence[Run]) -> tuple[Side, Side] | None:
    """
    The statement about two sides, which can be chosen; returns them. Untrusted runs have no part in it.

    None where there are no two sides to compare.
    """
    trusted = [run for run in runs if run.trusted]
    sides = loadtest_tables.sides(trusted)
    if len(sides) < 2:
        if trusted and sides:
            st.html('<p class="er-note">One engine was measured, so there is none that it overtakes.</p>')
        return None
    says = st.container()
    names = list(sides)
    load = loadtest_words.load_heading(str(trusted[0].mode))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        first = st.selectbox("A", names, index=0, key="a", bind="query-params", width=320)
        second = st.selectbox("B", names, index=1, key="b", bind="query-params", width=320)
        yours = st.number_input(
            "Your users" if load == "users" else "Your requests/s", 0.1 if load != "users" else 1, None,
            float(USERS) if load != "users" else USERS, key="yours", bind="query-params", width=140,
        )  # fmt: skip
    if first == second:
        says.info("A and B are the same. Choose another one to compare with.")
        return None
    a, b = sides[first or names[0]], sides[second or names[1]]
    measures = [
        (Measure(name, "higher" if better == "higher" else "lower", load), value) for name, better, value in _FIGURES
    ]
    throughput, value = measures[0]
    found = crossover.crossover(
        side_curve(trusted, a, str(first), value), side_curve(trusted, b, str(second), value), throughput
    )
    with says:
        st.html(f'<p class="er-says">{escape(found.sentence)}</p>')
        if found.left_out:
            st.html(f'<p class="er-note">Left out: {escape("; ".join(found.left_out))}.</p>')
    at_yours = [
        crossover.ratio_at(
            side_curve(trusted, a, str(first), value), side_curve(trusted, b, str(second), value), float(yours), measure
        ).sentence
        for measure, value in measures
    ]
    st.html('<p class="er-plan">' + "<br>".join(escape(text) for text in at_yours) + "</p>")
    return a, b


def side_curve(runs: Sequence[Run], side: Side, label: str, value: Callable[[Row], float | None]) -> Curve:
    """One engine of one run over its loads, without the stages that failed their checks."""
    run = next(run for run in runs if run.key == side[0])
    untrusted = {
        int(row["stage_id"]) for row in run.judgements if row["severity"] == "failed" and row["stage_id"] is not None
    }
    stages = [stage for stage in run.stages if loadtest_data.owner(stage) == side[1]]
    return curve_of(label, stages, untrusted, value, loadtest_data.level_of)
