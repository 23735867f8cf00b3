"""
The charts of a load test as Vega-Lite specifications: a measure against the load, and throughput against what one
user gets.

Specifications are authored with Altair, once for each layout, and kept; a refresh sends data only (see
`views.loadtest_frames` for the data sets). A curve that must not be relied on is grey.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt

from views.palette import NEUTRAL, dash_of, key_of

HEIGHT = 300  # axes and titles are within
RUN_SHAPES = ("circle", "square", "triangle-up", "diamond")  # one a run, where several are laid over each other


@dataclass(frozen=True, slots=True)
class Measure:
    """What a chart shows: the column of its data sets, its words, its unit, and how its axis runs."""

    key: str
    title: str
    unit: str
    band: str  # what the shaded band is, in words
    log: bool = False


THROUGHPUT = Measure("tps", "Output throughput", "tok/s", "95 % interval of the mean")
TTFT = Measure("ttft", "TTFT", "s", "up to p95", log=True)
TPOT = Measure("tpot", "TPOT", "ms", "up to p95")
GOODPUT = Measure("good", "Goodput: requests within the SLO", "requests/s", "95 % interval of the mean")
ENERGY = Measure("joule", "Energy per output token, of the whole device", "J", "95 % interval of the mean")
RED = "#C62828"
USER = "user"  # column of the output rate of one user


@dataclass(frozen=True, slots=True)
class Layout:
    """What decides a specification: how many places have colours, the levels, the load model, how many runs."""

    places: int
    levels: tuple[float, ...]
    load: str  # what a level is: "users" or "requests/s offered"
    runs: int


def _colour(layout: Layout) -> Any:
    scale = alt.Scale(domain=[key_of(place) for place in range(layout.places)])
    return alt.condition("datum.ok", alt.Color("s:N", scale=scale, legend=None), alt.value(NEUTRAL))


def _dash(layout: Layout) -> alt.StrokeDash:
    domain = [key_of(place) for place in range(layout.places)]
    scale = alt.Scale(domain=domain, range=[list(dash_of(place)) for place in range(layout.places)])
    return alt.StrokeDash("s:N", scale=scale, legend=None)


def _shape(layout: Layout) -> alt.Shape:
    runs = [f"r{number}" for number in range(max(1, layout.runs))]
    return alt.Shape("r:N", scale=alt.Scale(domain=runs, range=list(RUN_SHAPES[: len(runs)])), legend=None)


def _load_axis(layout: Layout) -> alt.X:
    levels = [level for level in layout.levels if level > 0]
    scale = alt.Scale(type="log", base=2, domain=[levels[0] / 1.12, levels[-1] * 1.12], nice=False)
    axis = alt.Axis(values=levels, format="~g", labelOverlap=True, grid=False)
    title = f"{layout.load} (log scale)"
    return alt.X("x:Q", title=title, scale=scale if len(levels) else alt.Undefined, axis=axis)


def _tips(measure: Measure, layout: Layout, *, mean: bool) -> list[alt.Tooltip]:
    form = ",.4~r"
    rows = [
        alt.Tooltip("label:N", title="engine"),
        alt.Tooltip("x:Q", title=layout.load, format=",~g"),
        alt.Tooltip(f"{measure.key}:Q", title=f"{'line' if mean else 'this repeat'} ({measure.unit})", format=form),
    ]
    if mean:
        rows += [
            alt.Tooltip(f"{measure.key}_lo:Q", title="band from", format=form),
            alt.Tooltip(f"{measure.key}_hi:Q", title="band to", format=form),
            alt.Tooltip("n:Q", title="repeats"),
        ]
    else:
        rows.append(alt.Tooltip("repeat:Q", title="repeat"))
    return [alt.Tooltip("run:N", title="run"), *rows] if layout.runs > 1 else rows


@lru_cache(maxsize=64)
def level_spec(measure: Measure, layout: Layout) -> dict[str, Any]:
    """
    A measure against the load: repeats as points, the line through each level, its band, the SLO as a rule.

    Data sets: `curve` (x s r label run ok n and the measure with `_lo` and `_hi`), `points` (x s r label run ok
    repeat and the measure), `slo` (value text; no row: none stated).
    """
    scale = alt.Scale(type="log", nice=False) if measure.log else alt.Scale(zero=True, nice=True)
    suffix = ", log scale" if measure.log else ""
    axis = alt.Axis(format=",.6~g", tickCount=6, labelOverlap=True)
    x, y = _load_axis(layout), alt.Y(f"{measure.key}:Q", title=f"{measure.unit}{suffix}", scale=scale, axis=axis)
    colour, detail = _colour(layout), ["s:N", "r:N"]
    curve, points = alt.Chart(alt.NamedData("curve")), alt.Chart(alt.NamedData("points"))
    band = curve.mark_area(opacity=0.16).encode(
        x=x, y=alt.Y(f"{measure.key}_lo:Q"), y2=f"{measure.key}_hi:Q", color=colour, detail=detail
    )
    line = curve.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=_dash(layout), detail=detail)
    means = curve.mark_point(size=46, filled=True, opacity=1).encode(
        x=x, y=y, color=colour, shape=_shape(layout), tooltip=_tips(measure, layout, mean=True)
    )
    repeats = points.mark_point(size=26, filled=False, strokeWidth=1.1, opacity=0.75).encode(
        x=x, y=y, color=colour, shape=_shape(layout), tooltip=_tips(measure, layout, mean=False)
    )
    slo = alt.Chart(alt.NamedData("slo"))
    rule = slo.mark_rule(strokeDash=[4, 3], strokeWidth=1.2, color=NEUTRAL).encode(y="value:Q")
    # Beside the chart's title: anywhere within the axes a curve may run through it.
    text = slo.mark_text(align="right", dy=-13, fontSize=11, color=NEUTRAL).encode(
        x=alt.value("width"), y=alt.value(0), text="text:N"
    )
    return _finished(alt.layer(band, rule, text, line, repeats, means), measure.title)


@lru_cache(maxsize=64)
def pareto_spec(layout: Layout) -> dict[str, Any]:
    """
    Total throughput against what one user gets, each level labelled with its load. Up and to the right is better.

    Data set `curve` (x s r label run ok at tps user).
    """
    x = alt.X(f"{USER}:Q", title="output of one user, 1 / TPOT (tok/s)", scale=alt.Scale(zero=True, nice=True))
    y = alt.Y("tps:Q", title="output of all (tok/s)", scale=alt.Scale(zero=True, nice=True))
    colour, detail = _colour(layout), ["s:N", "r:N"]
    curve = alt.Chart(alt.NamedData("curve"))
    line = curve.mark_line(strokeWidth=2).encode(
        x=x, y=y, color=colour, strokeDash=_dash(layout), detail=detail, order="x:Q"
    )
    tips = [
        alt.Tooltip("label:N", title="engine"),
        alt.Tooltip("x:Q", title=layout.load, format=",~g"),
        alt.Tooltip("tps:Q", title="all (tok/s)", format=",.4~r"),
        alt.Tooltip(f"{USER}:Q", title="one user (tok/s)", format=",.4~r"),
    ]
    dots = curve.mark_point(size=46, filled=True, opacity=1).encode(
        x=x, y=y, color=colour, shape=_shape(layout), tooltip=tips
    )
    words = curve.mark_text(dx=7, dy=-8, fontSize=11, align="left").encode(x=x, y=y, text="at:N", color=colour)
    return _finished(alt.layer(line, dots, words), f"All users against one, by {layout.load}")


def _finished(chart: alt.LayerChart | alt.FacetChart, title: str) -> dict[str, Any]:
    spec: dict[str, Any] = (
        chart.properties(height=HEIGHT, title=title)
        .configure_view(strokeOpacity=0.35)
        .configure_axis(labelFontSize=11, titleFontSize=11, gridOpacity=0.5)
        .configure_title(fontSize=12, anchor="start", offset=6)
        .to_dict()
    )
    spec.pop("$schema", None)
    return spec


WAITS, PREFILL, DECODE, BAD = "waits to be sent", "TTFT", "decode", "failed or cut off"


@lru_cache(maxsize=64)
def timeline_spec(place: int, row_height: float) -> dict[str, Any]:
    """
    The requests of one stage over its time, one row each in the order in which they were sent.

    Data sets: `bars` (row start end part tip) and `window` (start end text): the steady window.
    """
    bars = alt.Chart(alt.NamedData("bars"))
    window = alt.Chart(alt.NamedData("window"))
    x = alt.X("start:Q", title="seconds since the stage began", scale=alt.Scale(nice=False, zero=True))
    y = alt.Y("row:Q", title="requests", scale=alt.Scale(reverse=True, nice=False, zero=False),
              axis=alt.Axis(labels=False, ticks=False, grid=False))  # fmt: skip
    shade = window.mark_rect(opacity=0.12, color=NEUTRAL).encode(
        x=x, x2="end:Q", tooltip=[alt.Tooltip("text:N", title="steady window")]
    )
    engine = alt.Color("s:N", scale=alt.Scale(domain=[key_of(at) for at in range(place + 1)]), legend=None)
    tips = [alt.Tooltip("tip:N", title="request"), alt.Tooltip("part:N", title="part")]
    rows = []
    for part, opacity, colour in ((WAITS, 0.8, NEUTRAL), (PREFILL, 0.45, None), (DECODE, 1.0, None), (BAD, 1.0, RED)):
        mark = bars.transform_filter(f"datum.part === '{part}'").mark_rect(opacity=opacity)
        colours = engine if colour is None else alt.ColorValue(colour)
        rows.append(mark.encode(x=x, x2="end:Q", y=y, y2="to:Q", color=colours, tooltip=tips))
    chart = alt.layer(shade, *rows).properties(height=row_height)
    spec: dict[str, Any] = chart.configure_view(strokeOpacity=0.35).configure_axis(labelFontSize=11).to_dict()
    spec.pop("$schema", None)
    return spec
