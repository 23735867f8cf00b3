"""What a report says in sentences: only what was measured, is comparable and can be relied on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from comparison import crossover
from comparison.curves import Measure
from comparison.measures import BY_KEY
from comparison.windows import compare
from views import compare_table, loadtest_data, loadtest_statement, loadtest_tables, loadtest_words
from views.compare_sides import Side
from views.compare_windows import letter
from views.loadtest_data import Run
from views.report_contents import Contents

MEASURES = ("generation", "generation_working", "ttft_p50", "ttft_p95", "tpot_p50", "itl_mean", "joules_per_token")
MOST_PAIRS = 3


def findings(contents: Contents) -> list[str]:
    """The sentences: load tests first, then windows against the first one."""
    found: list[str] = []
    for run in contents.runs:
        found += _of_run(run)
    for place, side in enumerate(contents.sides[1:], 1):
        found += _of_windows(contents.sides[0], side, letter(place))
    return found


def _of_run(run: Run) -> list[str]:
    if not run.trusted:
        return [f"The load test “{run.name}” failed its own checks: nothing is concluded from it."]
    if run.mode is None:
        return []
    sides = loadtest_tables.sides([run])
    load = loadtest_words.load_heading(run.mode)
    measure = Measure("output tokens per second", "higher", load)
    value = loadtest_data.throughput_of
    curves = [loadtest_statement.side_curve([run], side, name, value) for name, side in sides.items()]
    pairs = list(combinations(curves, 2))[:MOST_PAIRS]
    return [f"Load test “{run.name}”: {crossover.crossover(a, b, measure).sentence}" for a, b in pairs]


def _of_windows(baseline: Side, other: Side, name: str) -> list[str]:
    """What is decided between two windows; a figure that is not comparable or not decided is no finding."""
    told: list[str] = []
    for key in MEASURES:
        first, second = baseline.figures.get(key), other.figures.get(key)
        if first is None or second is None or first.value is None or second.value is None:
            continue
        measure = BY_KEY[key]
        found = compare(first, second)
        if found is None or found.direction in (None, "undecided"):
            continue
        ratio = found.ratio
        if ratio.estimate is None or ratio.low is None or ratio.high is None:
            continue
        told.append(
            f"{measure.title}: {name} has {ratio.estimate:.2f} times that of A ({ratio.low:.2f} to {ratio.high:.2f}): "
            f"{compare_table.value_words(measure, second.value)} against "
            f"{compare_table.value_words(measure, first.value)}."
        )
    return told or [_nothing(baseline, other, name)]


def _nothing(baseline: Side, other: Side, name: str) -> str:
    warnings = [side.warning for side in (baseline, other) if side.warning]
    if warnings:
        return f"A and {name} are not compared: {' '.join(_distinct(warnings))}"
    return f"Between A and {name} nothing is decided: no figure of both differs by more than it scatters."


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))
