"""The curves of load tests, ready to be drawn: every measure against the load, and all users against one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from views import formatting, loadtest_charts, loadtest_frames, loadtest_words
from views.loadtest_charts import GOODPUT, THROUGHPUT, TPOT, TTFT, Layout, Measure
from views.loadtest_data import Run
from views.palette import Series

# measure, the SLO that belongs to it, factor from the SLO's seconds to the unit of the chart
MEASURES: tuple[tuple[Measure, str | None, float], ...] = (
    (THROUGHPUT, None, 1.0),
    (TTFT, "ttft_seconds", 1.0),
    (TPOT, "tpot_seconds", 1000.0),
    (GOODPUT, None, 1.0),
    (loadtest_charts.ENERGY, None, 1.0),
)
GROWING = 3  # of the measures are drawn while a run goes on


@dataclass(frozen=True, slots=True)
class Drawing:
    """One chart: its key, its specification, its data sets, and what it shows in words."""

    key: str
    spec: Mapping[str, Any]
    datasets: Mapping[str, pa.Table]
    words: str


def drawn_of(runs: Sequence[Run]) -> list[Run]:
    """The runs that share the axis of the first one: those of its load model."""
    return [run for run in runs if run.mode == runs[0].mode]


def drawings(runs: Sequence[Run], series: Mapping[str, Series]) -> list[Drawing]:
    """
    The charts of runs of one load model, throughput and its Pareto curve first; none where no level was told.

    A measure that no stage has is left out, and so are goodput and energy while a run goes on, so that a refresh
    stays small.
    """
    points = loadtest_frames.points(runs, series)
    if points.empty:
        return []
    curve = loadtest_frames.curve(points)
    load = loadtest_words.load_heading(str(runs[0].mode))
    layout = Layout(
        max(each.place for each in series.values()) + 1,
        tuple(sorted({float(level) for level in points["x"]} | _asked(runs))),
        load,
        len(runs),
    )
    slo = runs[0].spec.get("slo") or {}
    made = [
        Drawing(
            f"{measure.key}-{len(runs)}",
            loadtest_charts.level_spec(measure, layout),
            loadtest_frames.datasets(
                curve=loadtest_frames.columns_of(curve, measure.key),
                points=loadtest_frames.columns_of(points, measure.key),
                slo=loadtest_frames.slo_frame(slo.get(limit) if limit else None, measure.unit, factor),
            ),
            f"{measure.title} in {measure.unit} against {load}. {_in_words(curve, measure)}",
        )
        for measure, limit, factor in (MEASURES[:GROWING] if any(run.active for run in runs) else MEASURES)
        if curve[measure.key].notna().any()
    ]
    if curve[loadtest_charts.USER].notna().any():
        pareto = Drawing(
            f"pareto-{len(runs)}",
            loadtest_charts.pareto_spec(layout),
            loadtest_frames.datasets(curve=loadtest_frames.columns_of(curve, "tps", loadtest_charts.USER)),
            "Throughput of all users against that of one user, one point a level.",
        )
        made.insert(1, pareto)
    return made


def without_values(runs: Sequence[Run], series: Mapping[str, Series]) -> list[str]:
    """Titles of the measures that no stage of the runs has."""
    curve = loadtest_frames.curve(loadtest_frames.points(runs, series))
    return [measure.title for measure, *_ in MEASURES if not curve[measure.key].notna().any()]


def _asked(runs: Sequence[Run]) -> set[float]:
    """The levels that runs under way have yet to measure: the axis has room for them from the beginning."""
    asked = [level for run in runs if run.active for level in run.spec.get("levels") or ()]
    return {float(level) for level in asked if isinstance(level, int | float) and level > 0}


def _in_words(curve: pd.DataFrame, measure: Measure) -> str:
    parts = []
    for (_, label), group in curve.groupby(["r", "label"], sort=False):
        pairs = (
            f"{formatting.number(value)} at {level:g}"
            for level, value in zip(group["x"], group[measure.key], strict=True)
            if value is not None and formatting.known(float(value))
        )
        parts.append(f"{label}: {', '.join(pairs)}")
    return "; ".join(parts)
