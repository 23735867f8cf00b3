"""
The charts of the Memory page as Vega-Lite specifications, and the rows they draw.

Bars: one a device and one for the host. What is sure is drawn full, stacked part by part; what lies between the
lower and upper bounds follows in a lighter shade, so that the full part ends at the least the plan needs and the
light one at the most. Heat map: one cell for each pair of context length and users.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import altair as alt
import pandas as pd

from calculator.document import PART_TITLES, PARTS, part_of
from calculator.heatmap import Cell
from calculator.model import DevicePlan, Fits, MemoryPlan
from views import formatting
from views.memory_inputs import context_words
from views.palette import NEUTRAL

GIB = 2**30
BAR_HEIGHT = 34
CELL_HEIGHT = 17
FITS_WORDS = {Fits.YES: "fits", Fits.MAYBE: "depends", Fits.NO: "does not fit"}
FITS_SHAPES = {Fits.YES: "", Fits.MAYBE: "?", Fits.NO: "\N{MULTIPLICATION SIGN}"}
FITS_COLOURS = {Fits.YES: "#1A936F", Fits.MAYBE: "#C98A00", Fits.NO: "#8A94A3"}
_SHORT = {
    "weights": "weights",
    "kv": "KV cache",
    "state": "recurrent state",
    "compute": "compute",
    "overhead": "context and graphs",
}


def places_of(plan: MemoryPlan) -> list[DevicePlan]:
    """The devices, and the host where the plan puts anything there."""
    host = [plan.host] if plan.host.total_bytes.high or not plan.devices else []
    return [*plan.devices, *host]


def bar_rows(plan: MemoryPlan) -> pd.DataFrame:
    """Segments of the bars in GiB: `place part sure start end tip`, in the order in which they are stacked."""
    rows = []
    for place in places_of(plan):
        at = 0.0
        spans = [(part, part_of(place, part)) for part in PARTS]
        for part, bounds in spans:
            if bounds.low:
                rows.append((place.name, _SHORT[part], True, at, at + bounds.low / GIB, _tip(part, bounds.low)))
                at += bounds.low / GIB
        for part, bounds in spans:
            span = bounds.high - bounds.low
            if span:
                text = f"{PART_TITLES[part]}: up to {formatting.size(span)} more"
                rows.append((place.name, _SHORT[part], False, at, at + span / GIB, text))
                at += span / GIB
    return pd.DataFrame(rows, columns=["place", "part", "sure", "start", "end", "tip"])


def _tip(part: str, value_bytes: int) -> str:
    return f"{PART_TITLES[part]}: {formatting.size(value_bytes)} ({formatting.count(value_bytes)} bytes)"


def axis_end_bytes(plan: MemoryPlan) -> int:
    """How far the axis has to reach: every bar and the devices' limits, the host's where it is all there is."""
    limited = plan.devices or (plan.host,)
    ends = [place.total_bytes.high for place in places_of(plan)]
    return max([*ends, *(place.capacity_bytes or 0 for place in limited)])


def limit_rows(plan: MemoryPlan) -> pd.DataFrame:
    """What each place can hold, in GiB: `place capacity tip`. A host beyond the axis is not drawn."""
    rows = [
        (place.name, place.capacity_bytes / GIB, f"{place.name} holds {formatting.size(place.capacity_bytes)}")
        for place in places_of(plan)
        if place.capacity_bytes is not None
    ]
    return pd.DataFrame(rows, columns=["place", "capacity", "tip"])


@lru_cache(maxsize=64)
def bar_spec(places: tuple[str, ...], top_gib: float) -> dict[str, Any]:
    """The bars of `places` on an axis from 0 to `top_gib`; data sets `parts` and `limits`."""
    y = alt.Y("place:N", title=None, sort=list(places), axis=alt.Axis(labelLimit=150))
    color = alt.Color(
        "part:N",
        scale=alt.Scale(domain=list(_SHORT.values())),
        legend=alt.Legend(title=None, orient="bottom", columns=3, symbolType="square"),
    )
    bars = (
        alt.Chart(alt.NamedData("parts"))
        .mark_bar(height={"band": 0.72})
        .encode(
            y=y,
            x=alt.X("start:Q", title="GiB", scale=alt.Scale(domain=[0, top_gib], nice=False)),
            x2="end:Q",
            color=color,
            opacity=alt.condition("datum.sure", alt.value(0.92), alt.value(0.4)),
            tooltip=[alt.Tooltip("place:N", title="place"), alt.Tooltip("tip:N", title="holds")],
        )
    )
    limits = (
        alt.Chart(alt.NamedData("limits"))
        .mark_tick(thickness=3, height={"band": 0.95}, color=NEUTRAL, clip=True)
        .encode(y=y, x="capacity:Q", tooltip=[alt.Tooltip("tip:N", title="limit")])
    )
    return _plain(alt.layer(bars, limits).properties(height=alt.Step(BAR_HEIGHT)))


def bar_alt(plan: MemoryPlan) -> str:
    """The bars in words."""
    texts = []
    for place in places_of(plan):
        total = place.total_bytes
        size = formatting.size(total.low)
        size = size if total.exact else f"{size} to {formatting.size(total.high)}"
        limit = "" if place.capacity_bytes is None else f" of {formatting.size(place.capacity_bytes)}"
        texts.append(f"{place.name}: {size}{limit}")
    return f"Planned memory of {plan.model} on {plan.engine}. " + "; ".join(texts)


def heat_rows(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row a cell, ready to draw: words for the axes, and the answer as word and mark."""
    return pd.DataFrame(
        [
            {
                "context": context_words(cell.context_tokens),
                "users": formatting.count(cell.users),
                "fits": FITS_WORDS[cell.fits],
                "mark": FITS_SHAPES[cell.fits],
            }
            for cell in cells
        ],
        columns=["context", "users", "fits", "mark"],
    )


@lru_cache(maxsize=64)
def heat_spec(contexts: tuple[str, ...], users: tuple[str, ...]) -> dict[str, Any]:
    """
    The heat map; data sets `cells` and `chosen` (the pair that the page's controls name).

    The answers differ by colour and by a mark in the cell, so that colour is not needed to read it.
    """
    x = alt.X(
        "context:N",
        sort=list(contexts),
        title="tokens a user (context)",
        axis=alt.Axis(labelAngle=0, labelOverlap=True),
    )
    y = alt.Y("users:N", sort=list(reversed(users)), title="users at once", axis=alt.Axis(labelOverlap=False))
    cells = alt.Chart(alt.NamedData("cells"))
    words = [FITS_WORDS[answer] for answer in FITS_COLOURS]
    squares = cells.mark_rect(cornerRadius=2, stroke=None).encode(
        x=x,
        y=y,
        color=alt.Color(
            "fits:N",
            scale=alt.Scale(domain=words, range=list(FITS_COLOURS.values())),
            legend=alt.Legend(title=None, orient="top", symbolType="square"),
        ),
        opacity=alt.condition(f"datum.fits === '{FITS_WORDS[Fits.NO]}'", alt.value(0.3), alt.value(0.85)),
        tooltip=[
            alt.Tooltip("context:N", title="context"),
            alt.Tooltip("users:N", title="users"),
            alt.Tooltip("fits:N", title="answer"),
        ],
    )
    marks = cells.mark_text(fontSize=10, color=NEUTRAL).encode(x=x, y=y, text="mark:N")
    here = alt.Chart(alt.NamedData("chosen")).encode(x=x, y=y)
    # A dark ring within a light one, to be seen on every colour of both themes.
    rings = [
        here.mark_point(shape="circle", size=size, strokeWidth=width, filled=False, color=colour, opacity=1)
        for size, width, colour in ((120, 5, "#FFFFFF"), (120, 2.2, "#1B2430"))
    ]
    return _plain(alt.layer(squares, marks, *rings).properties(height=alt.Step(CELL_HEIGHT)))


def heat_alt(cells: Sequence[Cell]) -> str:
    """The heat map in words: for each number of users the longest context that fits."""
    best: dict[int, int] = {}
    for cell in cells:
        if cell.fits == Fits.YES:
            best[cell.users] = max(best.get(cell.users, 0), cell.context_tokens)
    if not best:
        return "No pair of context length and users is sure to fit."
    texts = [f"{users} users: {formatting.count(context)} tokens" for users, context in sorted(best.items())]
    return "Longest context that is sure to fit, by users. " + "; ".join(texts)


def _plain(chart: alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    spec: dict[str, Any] = (
        chart.configure_view(strokeOpacity=0)
        .configure_axis(labelFontSize=11, titleFontSize=11, grid=False)
        .configure_legend(labelFontSize=11)
        .to_dict()
    )
    spec.pop("$schema", None)
    return spec
