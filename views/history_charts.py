"""
The stack of charts of the History page: states of the engines on top, then what they did, one time axis for all.

Authored once for each combination of engines, devices, groups and step, like the Live page's (`views.charts`).
Dragging over any chart selects a range of the axis (`BRUSH`), which the page turns into its new range.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import altair as alt

from views import charts, marks
from views.crosshair import AIMS, pointed_at
from views.palette import NEUTRAL, Series, key_of
from views.panels import HOST_KEY, Panel, Scene, Shape, Stroke, step_parameters, x_time

BRUSH = "zoom"
# Groups of charts in the order of the stack, as the query string names them too.
THROUGHPUT, REQUESTS, KV, LATENCY = "Throughput", "Requests", "KV cache", "Latency"
GPU_MEMORY, GPU_LOAD, HOST = "GPU memory", "GPU load", "Host"
GROUPS = (THROUGHPUT, REQUESTS, KV, LATENCY, GPU_MEMORY, GPU_LOAD, HOST)
# Latency quantities in the order of the stack: title, unit and how many of the unit are a second.
LATENCIES = {
    "ttft_seconds": ("TTFT", "s", 1.0),
    "itl_seconds": ("ITL", "ms", 1000.0),
    "tpot_seconds": ("TPOT", "ms", 1000.0),
    "e2e_seconds": ("E2E latency", "s", 1.0),
    "queue_seconds": ("Queue time", "s", 1.0),
}
PERCENTILES = {"p50": (1, 0), "p95": (5, 4), "p99": (2, 2)}
DASH_NAMES = {"p50": "solid", "p95": "dashed", "p99": "dotted"}
STATE_ROW_HEIGHT = 17
MOST_LINES_OF_DEVICES = len(marks.DEVICE_DASHES)
HOST_ROW = "host"
BLANK = "\N{NO-BREAK SPACE}"
# Midnights carry the date, other hours the time of day; seconds only where the axis is that fine.
LABELS = (
    "utcFormat(datum.value, utchours(datum.value) || utcminutes(datum.value) || utcseconds(datum.value)"
    " ? (utcseconds(datum.value) ? '%H:%M:%S' : '%H:%M') : '%b %d')"
)


def panels_of(
    groups: tuple[str, ...],
    devices: tuple[tuple[str, str], ...],
    quantities: tuple[str, ...],
    percentiles: tuple[str, ...],
    *,
    engines: bool,
) -> tuple[Panel, ...]:
    """The charts of the stack below the states. `quantities` are the latencies that have data."""
    made: list[Panel] = []
    if engines and THROUGHPUT in groups:
        made += charts.ENGINE_PANELS[:2]
    if engines and REQUESTS in groups:
        made += charts.ENGINE_PANELS[2:]
    if engines and KV in groups:
        made.append(Panel("kv", "KV cache in use", "%", "lines", "engine", "kv"))
    if engines and LATENCY in groups and percentiles:
        made += [_latency_panel(quantity, percentiles) for quantity in LATENCIES if quantity in quantities]
    if devices and GPU_MEMORY in groups:
        made += charts.memory_panels(devices)
    if devices and GPU_LOAD in groups:
        made += _load_panels(devices)
    if HOST in groups:
        made += charts.HOST_PANELS
    return tuple(made)


def _latency_panel(quantity: str, percentiles: tuple[str, ...]) -> Panel:
    title, unit, _ = LATENCIES[quantity]
    strokes = tuple(Stroke(name, name, PERCENTILES[name]) for name in percentiles)
    words = ", ".join(f"{name} {DASH_NAMES[name]}" for name in percentiles)
    return Panel(
        f"latency_{quantity}", f"{title}: {words}", unit, "strokes", "latency", percentiles[0],
        quantity=quantity, strokes=strokes, bands=False,
    )  # fmt: skip


def _load_panels(devices: tuple[tuple[str, str], ...]) -> list[Panel]:
    heat = len(devices) > MOST_LINES_OF_DEVICES
    shape: Shape = "heat" if heat else "devices"
    words = "" if heat else charts.dash_words(devices)
    titles = {"util": ("GPU utilisation", "%"), "power": ("GPU power", "W"), "temp": ("GPU temperature", "°C")}
    return [
        Panel(f"device_{field}", title + words, unit, shape, "device", field) for field, (title, unit) in titles.items()
    ]


def history_spec(
    panels: tuple[Panel, ...],
    rows: tuple[tuple[str, str], ...],
    engines: tuple[Series, ...],
    holders: tuple[Series, ...],
    residents: tuple[Series, ...],
    devices: tuple[tuple[str, str], ...],
    grid_seconds: float,
) -> dict[str, Any]:
    """
    The specification of the whole stack, without data.

    Parameters: the charts below the states; `(row key, name)` of each row of states; the engines drawn, those
    that hold device memory and those that hold host memory; `(device key, name)` pairs; the width of one step.
    """
    last = len(panels) - 1
    made = [_states_dict(rows, last=not panels)]
    for n, panel in enumerate(panels):
        drawn = engines if panel.shape != "parts" else residents if panel.device == HOST_KEY else holders
        made.append(_panel_dict(panel, drawn, devices, last=n == last))
    spec = marks.stack_of(made)
    brush = {
        "type": "interval",
        "encodings": ["x"],
        "mark": {"fill": NEUTRAL, "fillOpacity": 0.2, "stroke": NEUTRAL},
        "zoom": False,
    }
    spec["params"] += [
        {"name": BRUSH, "select": brush, "views": marks.names(spec, AIMS)},
        *step_parameters(grid_seconds),
    ]
    return spec


def _scene(devices: tuple[tuple[str, str], ...]) -> Scene:
    return Scene(devices, None, spread=True, label_expression=LABELS, gaps=True)


# Kept one by one: another choice of charts, range or step needs none of them anew.
@lru_cache(maxsize=512)
def _panel_dict(
    panel: Panel, engines: tuple[Series, ...], devices: tuple[tuple[str, str], ...], *, last: bool
) -> dict[str, Any]:
    low = panel.shape == "parts" and len(devices) > MOST_LINES_OF_DEVICES
    height = 70 if low else marks.PANEL_HEIGHT
    return marks.panel_dict(marks.panel_chart(panel, engines, _scene(devices), first=False, last=last, height=height))


@lru_cache(maxsize=128)
def _states_dict(rows: tuple[tuple[str, str], ...], *, last: bool) -> dict[str, Any]:
    return marks.panel_dict(states_panel(rows, _scene(()), last=last))


def states_panel(rows: tuple[tuple[str, str], ...], scene: Scene, *, last: bool) -> alt.LayerChart | alt.FacetChart:
    """
    A row for each engine and one for the host: a thick bar while it served, a thinner one while it worked on
    something else, a line while it did not answer, nothing while nothing was recorded; events on top.
    """
    order = [key for key, _ in rows]
    # Axis labels inside the chart: they have the theme's colour, which marks of text have not.
    axis = alt.Axis(
        labelExpr=f"{json.dumps(dict(rows))}[datum.value]", labelAlign="left", labelPadding=-5, labelLimit=300,
        labelFontWeight="bold",
        labelOverlap=False, labelFlush=False, ticks=False, domain=False, grid=False, zindex=1,
        minExtent=marks.AXIS_WIDTH, maxExtent=marks.AXIS_WIDTH,
    )  # fmt: skip
    # A blank title of the axis: without any, the title of the chart begins further right than the others.
    y = alt.Y("row:N", title=BLANK, axis=axis, scale=alt.Scale(domain=order))
    x = x_time(scene, last=last)
    places = [int(key[1:]) for key in order if key != HOST_ROW]
    color = alt.Color(
        "row:N", scale=alt.Scale(domain=[key_of(n) for n in range(max(places, default=-1) + 1)]), legend=None
    )
    window = marks.window_ends(scene, alt.YDatum(order[0], title=BLANK), last=last)
    states = alt.Chart(alt.NamedData("states"))
    tips = [
        alt.Tooltip("name:N", title="who"),
        alt.Tooltip("what:N", title="state"),
        alt.Tooltip("when:N", title="from"),
        alt.Tooltip("why:N", title="why"),
    ]
    bars = [
        states.transform_filter(f"datum.tone === '{tone}'")
        .mark_rect(height={"band": band}, opacity=opacity)
        .encode(x=x, x2="te:T", y=y, color=alt.condition(f"datum.row === '{HOST_ROW}'", alt.value(NEUTRAL), color))
        for tone, band, opacity in (("good", 0.8, 0.22), ("work", 0.4, 0.5))
    ]
    silent = (
        states.transform_filter("datum.tone === 'warn' || datum.tone === 'bad' || datum.tone === 'off'")
        .mark_rect(height={"band": 0.14}, color=NEUTRAL, opacity=0.9)
        .encode(x=x, x2="te:T", y=y)
    )
    rule = pointed_at()
    # Invisible, over the whole height of a row: a thin line is hard to aim at.
    aims = states.transform_filter("datum.te > datum.ts").mark_rect(opacity=0).encode(x=x, x2="te:T", y=y, tooltip=tips)
    events = alt.Chart(alt.NamedData("marks"))
    happened = [alt.Tooltip("when:N", title="event at"), alt.Tooltip("text:N", title="what happened")]
    event_marks = events.mark_point(shape="triangle-down", filled=True, color=NEUTRAL, opacity=1).encode(
        x=x, y=y, tooltip=happened, size=alt.condition("datum.text !== ''", alt.value(70), alt.value(0))
    )
    if scene.elapsed:
        event_marks = event_marks.encode(color=color)
    return alt.layer(window, *bars, silent, rule, aims, event_marks).properties(
        height=STATE_ROW_HEIGHT * len(rows),
        title="States and events",
    )


def alt_text(panels: tuple[Panel, ...], engines: tuple[Series, ...], hours: float) -> str:
    """What the stack shows, in words, for people who can't see it."""
    names = ", ".join(series.label for series in engines) or "no engine"
    listed = "; ".join(f"{panel.title} in {panel.unit}" for panel in panels)
    return (
        f"States of the engines and {len(panels)} charts over {hours:.4g} hours on one UTC time axis. "
        f"Engines: {names}. Charts: {listed}."
    )
