"""
The stack of charts of the Live page as one Vega-Lite specification: one time axis, one crosshair.

Specifications are authored with Altair, once for each combination of engines and devices, and kept; a
refresh sends data only (see `views.frames` for the data sets). The time axis spans exactly the data set
`window`, so that the specification stays the same while the window moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import altair as alt

from views.palette import NEUTRAL, Series, dash_of, key_of

PANEL_HEIGHT = 92
AXIS_WIDTH = 46
DEVICE_DASHES = {"solid": [1, 0], "dashed": [7, 3], "dotted": [2, 2], "dash-dotted": [9, 3, 2, 3]}
Shape = Literal["lines", "requests", "parts", "devices", "total"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of the stack: what it shows, in which unit, and the data set and columns it reads."""

    key: str
    title: str
    unit: str
    shape: Shape
    dataset: str
    field: str
    device: str | None = None  # data rows with this device key only


ENGINE_PANELS = (
    Panel("generation", "Generation throughput", "tok/s", "lines", "engine", "gen"),
    Panel("prompt", "Prompt throughput, computed", "tok/s", "lines", "engine", "prompt"),
    Panel("requests", "Requests: running solid, waiting dashed", "requests", "requests", "engine", "run"),
)
HOST_KEY = "h"  # the host among the devices of the data set "parts"
HOST_PANELS = (
    Panel("host_memory", "Host memory by holder; engines: resident set", "GiB", "parts", "parts", "hi", HOST_KEY),
    Panel("host_cpu", "Host CPU, all cores", "%", "total", "host", "cpu"),
)


def device_panels(devices: tuple[tuple[str, str], ...]) -> tuple[Panel, ...]:
    """GPU panels for `(device key, name)` pairs: memory of each device, then utilisation and power of all."""
    if not devices:
        return ()
    memory = tuple(
        Panel(f"memory_{key}", f"{name} memory by holder", "GiB", "parts", "parts", "hi", key) for key, name in devices
    )
    return (
        *memory,
        Panel("utilisation", f"GPU utilisation{_dash_words(devices)}", "%", "devices", "device", "util"),
        Panel("power", f"GPU power{_dash_words(devices)}", "W", "devices", "device", "power"),
    )


def panels_of(engines: tuple[Series, ...], devices: tuple[tuple[str, str], ...]) -> tuple[Panel, ...]:
    """The charts of a stack from top to bottom; none of engines where there is no engine."""
    return (ENGINE_PANELS if engines else ()) + device_panels(devices) + HOST_PANELS


def _dash_words(devices: tuple[tuple[str, str], ...]) -> str:
    """Which line is which device; the tooltip tells it too, also when there are more devices than patterns."""
    if len(devices) == 1:
        return ""
    words = (f"{name} {word}" for (_, name), word in zip(devices, DEVICE_DASHES, strict=False))
    return ": " + ", ".join(words)


def alt_text(panels: tuple[Panel, ...], engines: tuple[Series, ...], minutes: float) -> str:
    """What the stack shows, in words, for people who can't see it."""
    names = ", ".join(series.label for series in engines) or "no engine"
    charts = "; ".join(f"{panel.title} in {panel.unit}" for panel in panels)
    return f"{len(panels)} charts over {minutes:g} minutes on one UTC time axis. Engines: {names}. Charts: {charts}."


@lru_cache(maxsize=128)
def live_spec(
    engines: tuple[Series, ...],
    holders: tuple[Series, ...],
    devices: tuple[tuple[str, str], ...],
    grid_seconds: float,
    residents: tuple[Series, ...] = (),
) -> dict[str, Any]:
    """
    The specification of the whole stack, without data.

    Parameters: the engines drawn, in the order of their places; all engines there are, since each may hold
    device memory; `(device key, name)` pairs; the width of one crosshair step in
    seconds (a step shows the mean of the samples in it); the engines that hold host memory.
    """
    panels = panels_of(engines, devices)
    charts = [
        _panel(
            panel,
            engines if panel.shape != "parts" else residents if panel.device == HOST_KEY else holders,
            devices,
            grid_seconds,
            first=n == 0,
            last=n == len(panels) - 1,
        )
        for n, panel in enumerate(panels)
    ]
    stack = (
        alt.vconcat(*charts, spacing=6)
        .resolve_scale(x="shared", color="independent", strokeDash="independent")
        .configure_view(strokeOpacity=0.35)
        .configure_axis(labelFontSize=11, titleFontSize=11, grid=True, gridOpacity=0.5)
        .configure_title(fontSize=12, anchor="start", offset=4)
    )
    spec: dict[str, Any] = stack.to_dict()
    spec.pop("$schema", None)
    # Declared here, for all panels at once: Altair would declare it a panel.
    select = {"type": "point", "on": "pointermove", "clear": "pointerout", "nearest": True, "fields": ["at"]}
    spec["params"] = [{"name": "hover", "select": select, "views": _names(spec, "at_")}]
    return spec


def _names(spec: dict[str, Any], prefix: str) -> list[str]:
    """Names of the layers that begin with `prefix` (Altair numbers the names of layers)."""
    layers = [layer for chart in spec["vconcat"] for layer in chart["layer"]]
    return [layer["name"] for layer in layers if str(layer.get("name", "")).startswith(prefix)]


def _panel(
    panel: Panel,
    engines: tuple[Series, ...],
    devices: tuple[tuple[str, str], ...],
    grid_seconds: float,
    *,
    first: bool,
    last: bool,
) -> alt.LayerChart | alt.FacetChart:
    data = alt.Chart(alt.NamedData(panel.dataset))
    if panel.device is not None:
        data = data.transform_filter(f"datum.d === '{panel.device}'")
    axis = alt.Axis(
        title="time (UTC)" if last else None,
        labels=last,
        ticks=last,
        format="%H:%M:%S",
        labelOverlap=True,
        tickCount=8,
        labelFlush=True,
    )
    x = alt.X("ts:T", title=None, scale=alt.Scale(type="utc"))
    y_axis = alt.Axis(tickCount=3, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH, format=",.6~g")
    y = alt.Y(
        f"{panel.field}:Q",
        title=panel.unit,
        axis=y_axis,
        scale=alt.Scale(domain=[0, 100]) if panel.unit == "%" else alt.Scale(zero=True, nice=True),
    )
    # Invisible points at both ends of the time axis, and at 1 so that a line of zeros lies at the bottom.
    window = (
        alt.Chart(alt.NamedData("window"))
        .mark_point(opacity=0, size=1)
        .encode(x=alt.X("ts:T", scale=alt.Scale(type="utc", nice=False), axis=axis), y=alt.YDatum(1, title=panel.unit))
    )
    drawn, keys = _marks(panel, engines, devices, data, x, y)
    crosshair = _crosshair(panel, keys, data, grid_seconds)
    height = PANEL_HEIGHT if panel.shape != "parts" else PANEL_HEIGHT + 8
    marks = alt.layer(window, *drawn, crosshair, *_event_marks(x, arrow=first))
    return marks.properties(height=height, title=panel.title)


def _marks(
    panel: Panel,
    engines: tuple[Series, ...],
    devices: tuple[tuple[str, str], ...],
    data: alt.Chart,
    x: alt.X,
    y: alt.Y,
) -> tuple[list[alt.Chart], list[tuple[str, str]]]:
    """The visible layers of a panel, and `(column after the pivot, name)` of what the crosshair reads out."""
    # All places up to the last one drawn, so that an engine keeps its colour when others are hidden.
    places = range(max((series.place for series in engines), default=-1) + 1)
    domain = [key_of(place) for place in places]
    color = alt.Color("s:N", scale=alt.Scale(domain=domain), legend=None)
    dashes = alt.Scale(domain=domain, range=[list(dash_of(place)) for place in places])
    dash = alt.StrokeDash("s:N", scale=dashes, legend=None)
    engine_keys = [(series.key, series.label) for series in engines]
    match panel.shape:
        case "lines":
            band = data.mark_area(opacity=0.18).encode(
                x=x, y=alt.Y(f"{panel.field}_lo:Q"), y2=f"{panel.field}_hi:Q", color=color
            )
            return [band, data.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, strokeDash=dash)], engine_keys
        case "requests":
            bands = [
                data.mark_area(opacity=0.15).encode(x=x, y=alt.Y(f"{what}_lo:Q"), y2=f"{what}_hi:Q", color=color)
                for what, _ in _REQUESTS
            ]
            running = data.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color)
            waiting = data.mark_line(strokeWidth=1.8, strokeDash=[5, 4]).encode(x=x, y=alt.Y("wait:Q"), color=color)
            keys = [
                (f"{series.key}_{what}", f"{series.label}, {word}") for series in engines for what, word in _REQUESTS
            ]
            return [*bands, running, waiting], keys
        case "parts":
            rest = [("other", "other processes"), ("driver", "driver and unattributed")]
            return _memory_marks(data, x, y, color), [*engine_keys, *rest[: 1 if panel.device == HOST_KEY else 2]]
        case "devices":
            kinds = alt.StrokeDash(
                "d:N",
                scale=alt.Scale(domain=[key for key, _ in devices], range=list(DEVICE_DASHES.values())),
                legend=None,
            )
            band = data.mark_area(opacity=0.15, color=NEUTRAL).encode(
                x=x, y=alt.Y(f"{panel.field}_lo:Q"), y2=f"{panel.field}_hi:Q", detail="d:N"
            )
            line = data.mark_line(strokeWidth=1.6, color=NEUTRAL).encode(x=x, y=y, strokeDash=kinds)
            return [band, line], list(devices)
        case "total":
            band = data.mark_area(opacity=0.25, color=NEUTRAL).encode(
                x=x, y=alt.Y(f"{panel.field}_lo:Q"), y2=f"{panel.field}_hi:Q"
            )
            line = data.mark_line(strokeWidth=1.6, color=NEUTRAL).encode(x=x, y=y)
            return [band, line], [("all", panel.title)]


_REQUESTS = (("run", "running"), ("wait", "waiting"))
REST_OPACITY = {"other": 0.65, "driver": 0.3}


def _memory_marks(data: alt.Chart, x: alt.X, y: alt.Y, color: alt.Color) -> list[alt.Chart]:
    """Stacked areas whose bounds come with the data: the engines in their colours, the rest in greys."""
    engines = data.transform_filter("datum.s !== 'other' && datum.s !== 'driver' && datum.s !== 'total'")
    rest = [
        data.transform_filter(f"datum.s === '{key}'")
        .mark_area(color=NEUTRAL, opacity=opacity)
        .encode(x=x, y=alt.Y("hi:Q"), y2="lo:Q")
        for key, opacity in REST_OPACITY.items()
    ]
    return [
        engines.mark_area(opacity=0.75).encode(x=x, y=y, y2="lo:Q", color=color),
        *rest,
        data.transform_filter("datum.s === 'total'")
        .mark_line(strokeDash=[4, 3], strokeWidth=1.2, color=NEUTRAL)
        .encode(x=x, y=alt.Y("hi:Q")),
    ]


def _crosshair(panel: Panel, keys: list[tuple[str, str]], data: alt.Chart, grid_seconds: float) -> alt.Chart:
    """A rule at each step of the time axis; it shows at the pointer, in all panels at once, with every value there."""
    step = grid_seconds * 1000
    rows = data.transform_calculate(at=f"floor(datum.ts / {step:g}) * {step:g} + {step / 2:g}")
    match panel.shape:
        case "requests":
            rows = rows.transform_fold(["run", "wait"], as_=["what", "v"]).transform_calculate(
                k="datum.s + '_' + datum.what"
            )
        case "parts":
            rows = rows.transform_filter("datum.s !== 'total'")
            rows = rows.transform_calculate(k="datum.s", v="isValid(datum.hi) ? datum.hi - datum.lo : null")
        case "devices":
            rows = rows.transform_calculate(k="datum.d", v=f"datum.{panel.field}")
        case "total":
            rows = rows.transform_calculate(k="'all'", v=f"datum.{panel.field}")
        case _:
            rows = rows.transform_calculate(k="datum.s", v=f"datum.{panel.field}")
    rows = rows.transform_filter("isValid(datum.v)").transform_pivot("k", value="v", groupby=["at"], op="mean")
    # A holder that is missing where the rest is known holds nothing in that place.
    base = "other" if panel.device == HOST_KEY else "driver"
    missing = f"isValid(datum.{base}) ? 'nothing' : 'not known'" if panel.shape == "parts" else "'not known'"
    texts = {
        f"t{n}": f"isValid(datum['{key}']) ? format(datum['{key}'], ',.4~r') + ' {panel.unit}' : {missing}"
        for n, (key, _) in enumerate(keys)
    }
    when = f"utcFormat(datum.at - {step / 2:g}, '%Y-%m-%d %H:%M:%S') + ' UTC, mean over {grid_seconds:g} s'"
    rows = rows.transform_calculate(when=when, **texts)
    tips = [alt.Tooltip("when:N", title="from")]
    tips += [alt.Tooltip(f"t{n}:N", title=name) for n, (_, name) in enumerate(keys)]
    rule = rows.mark_rule(strokeWidth=1, color=NEUTRAL).properties(name=f"at_{panel.key}")
    shown: alt.Chart = rule.encode(
        x=alt.X("at:T", title=None, scale=alt.Scale(type="utc")), tooltip=tips, opacity=_AT_POINTER
    )
    return shown


_AT_POINTER = alt.condition(alt.selection_point(name="hover"), alt.value(0.65), alt.value(0), empty=False)


def _event_marks(x: alt.X, *, arrow: bool) -> list[alt.Chart]:
    """A vertical rule for each event, with its text on hover; in the first panel a triangle at the top to aim at."""
    events = alt.Chart(alt.NamedData("events"))
    drawn = alt.condition("datum.text !== ''", alt.value(1), alt.value(0))
    tips = [alt.Tooltip("when:N", title="event at"), alt.Tooltip("text:N", title="what happened")]
    marks = [
        events.mark_rule(strokeWidth=1.2, strokeDash=[2, 3], color=NEUTRAL).encode(x=x, tooltip=tips, opacity=drawn)
    ]
    if arrow:
        aim = events.mark_point(shape="triangle-down", filled=True, size=90, color=NEUTRAL)
        marks.append(aim.encode(x=x, y=alt.value(4), tooltip=tips, opacity=drawn))
    return marks
