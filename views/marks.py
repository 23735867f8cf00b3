"""
One chart of a stack as Vega-Lite: its lines, bands or areas, the crosshair that all charts share, event marks.

`views.charts` stacks them for the Live page, `views.history_charts` for the History page. Data sets are named
here and made by `views.frames` and `views.history_frames`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from views.crosshair import AIMS, crosshair, crosshair_parameter
from views.palette import NEUTRAL, Series, dash_of, key_of
from views.panels import Panel, Scene, x_time

PANEL_HEIGHT = 92
HEAT_ROW_HEIGHT = 13
AXIS_WIDTH = 46
DEVICE_DASHES = {"solid": [1, 0], "dashed": [7, 3], "dotted": [2, 2], "dash-dotted": [9, 3, 2, 3]}
REST_OPACITY = {"other": 0.65, "driver": 0.3}
BAND_OPACITY, FAINT_BAND_OPACITY, FEW_LINES = 0.18, 0.06, 4  # the bands of many lines lie over each other


def time_axis(scene: Scene, *, last: bool) -> alt.Axis:
    """The time axis of a panel; only the last one of a stack has labels."""
    words: dict[str, Any] = (
        {"format": "%H:%M:%S"} if scene.label_expression is None else {"labelExpr": scene.label_expression}
    )
    return alt.Axis(
        title=scene.time_title if last else None,
        labels=last,
        ticks=last,
        labelOverlap=True,
        tickCount=8,
        labelFlush=True,
        **words,
    )


def window_ends(scene: Scene, y: alt.YDatum, *, last: bool) -> alt.Chart:
    """Invisible points at both ends of the time axis, which they bring along."""
    ends = alt.Chart(alt.NamedData("window")).mark_point(opacity=0, size=1)
    scale = alt.Scale(type="utc", nice=False)
    shown: alt.Chart = ends.encode(x=alt.X("ts:T", scale=scale, axis=time_axis(scene, last=last)), y=y)
    return shown


def panel_chart(
    panel: Panel, engines: tuple[Series, ...], scene: Scene, *, first: bool, last: bool, height: int = PANEL_HEIGHT
) -> alt.LayerChart | alt.FacetChart:
    """One panel of a stack with everything on it."""
    data = alt.Chart(alt.NamedData(panel.dataset))
    if panel.device is not None:
        data = data.transform_filter(f"datum.d === '{panel.device}'")
    if panel.quantity is not None:
        data = data.transform_filter(f"datum.q === '{panel.quantity}'")
    x = x_time(scene, last=last)
    if panel.shape == "heat":
        # At the place of a device: a heat map has no scale of values.
        window = window_ends(scene, alt.YDatum(scene.devices[0][0], title=panel.unit), last=last)
        height = HEAT_ROW_HEIGHT * len(scene.devices)
    else:
        # At 1 so that a line of zeros lies at the bottom.
        window = window_ends(scene, alt.YDatum(1, title=panel.unit), last=last)
    drawn = panel_marks(panel, engines, scene, data, x)
    marks = alt.layer(
        window, *drawn, *crosshair(panel, engines, scene, data, last=last), *_overlays(engines, x, scene, arrow=first)
    )
    return marks.properties(height=height + 8 * (panel.shape == "parts"), title=panel.title)


def panel_marks(panel: Panel, engines: tuple[Series, ...], scene: Scene, data: alt.Chart, x: alt.X) -> list[alt.Chart]:
    """The visible layers of a panel."""
    y_axis = alt.Axis(tickCount=3, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH, format=",.6~g")
    scale = alt.Scale(domain=[0, 100]) if panel.unit == "%" else alt.Scale(zero=True, nice=True)
    y = alt.Y(f"{panel.field}:Q", title=panel.unit, axis=y_axis, scale=scale)
    domain, color = _domain(engines), _colour(engines)
    low, high = alt.Y(f"{panel.field}_lo:Q"), f"{panel.field}_hi:Q"
    match panel.shape:
        case "lines":
            opacity = BAND_OPACITY if len(engines) <= FEW_LINES else FAINT_BAND_OPACITY
            dashes = alt.Scale(domain=domain, range=[list(dash_of(place)) for place in range(len(domain))])
            dash = alt.StrokeDash("s:N", scale=dashes, legend=None)
            band = data.mark_area(opacity=opacity).encode(x=x, y=low, y2=high, color=color)
            line = data.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, strokeDash=dash)
            if scene.elapsed:
                width = alt.condition("datum.r > 0", alt.value(1), alt.value(1.8))
                band, line = band.encode(detail="r:N"), line.encode(detail="r:N", strokeWidth=width)
            return [band, line]
        case "strokes":
            bands = [
                data.mark_area(opacity=BAND_OPACITY if len(engines) <= FEW_LINES else FAINT_BAND_OPACITY).encode(
                    x=x, y=alt.Y(f"{stroke.column}_lo:Q"), y2=f"{stroke.column}_hi:Q", color=color
                )
                for stroke in panel.strokes
                if panel.bands
            ]
            lines = [
                data.mark_line(strokeWidth=1.8, strokeDash=list(stroke.dash)).encode(
                    x=x, y=y if stroke.column == panel.field else alt.Y(f"{stroke.column}:Q"), color=color
                )
                for stroke in panel.strokes
            ]
            return [*bands, *lines]
        case "parts":
            return _memory_marks(data, x, y, color)
        case "devices":
            words = alt.Scale(domain=[key for key, _ in scene.devices], range=list(DEVICE_DASHES.values()))
            kinds = alt.StrokeDash("d:N", scale=words, legend=None)
            band = data.mark_area(opacity=0.15, color=NEUTRAL).encode(x=x, y=low, y2=high, detail="d:N")
            return [band, data.mark_line(strokeWidth=1.6, color=NEUTRAL).encode(x=x, y=y, strokeDash=kinds)]
        case "heat":
            return [_heat_marks(panel, scene, data, x)]
        case "total":
            band = data.mark_area(opacity=0.25, color=NEUTRAL).encode(x=x, y=low, y2=high)
            return [band, data.mark_line(strokeWidth=1.6, color=NEUTRAL).encode(x=x, y=y)]


def _domain(engines: tuple[Series, ...]) -> list[str]:
    """All places up to the last one drawn, so that an engine keeps its colour when others are hidden."""
    return [key_of(place) for place in range(max((series.place for series in engines), default=-1) + 1)]


def _colour(engines: tuple[Series, ...]) -> alt.Color:
    return alt.Color("s:N", scale=alt.Scale(domain=_domain(engines)), legend=None)


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


def _heat_marks(panel: Panel, scene: Scene, data: alt.Chart, x: alt.X) -> alt.Chart:
    """A row for each device, shaded by value: more lines than dash patterns can't be told apart."""
    names = "{" + ", ".join(f"'{key}': '{name}'" for key, name in scene.devices) + "}"
    axis = alt.Axis(
        labelExpr=f"{names}[datum.value]", labelOverlap=False, labelFlush=False, labelFontSize=10, ticks=False,
        domain=False, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH,
    )  # fmt: skip
    legend = alt.Legend(
        orient="none", legendX=0, legendY=-30, direction="horizontal", gradientLength=120, gradientThickness=7,
        title=None, tickCount=2, labelOffset=2, labelFontSize=10,
    )  # fmt: skip
    scale = alt.Scale(domain=[0, 100]) if panel.unit == "%" else alt.Scale(zero=False, nice=True)
    cells = data.transform_filter(f"isValid(datum.{panel.field})").transform_calculate(end=f"datum.ts + {scene.step}")
    shown: alt.Chart = cells.mark_rect().encode(
        x=x,
        x2="end:T",
        y=alt.Y("d:N", title=panel.unit, axis=axis, scale=alt.Scale(domain=[key for key, _ in scene.devices])),
        color=alt.Color(f"{panel.field}:Q", scale=scale, legend=legend),
    )
    return shown


def names(spec: dict[str, Any], prefix: str) -> list[str]:
    """Names of the layers that begin with `prefix`."""
    layers = [layer for chart in spec["vconcat"] for layer in chart["layer"]]
    return [layer["name"] for layer in layers if str(layer.get("name", "")).startswith(prefix)]


def stack(charts: Sequence[alt.LayerChart | alt.FacetChart]) -> dict[str, Any]:
    """Panels one below the other as a specification, with one time axis and one crosshair."""
    return stack_of([panel_dict(chart) for chart in charts])


def panel_dict(chart: alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    """One panel as a part of a specification."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return {key: value for key, value in spec.items() if key not in ("$schema", "config")}


def stack_of(panels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """
    What `stack` makes, of panels that were authored one by one and may be kept.

    Put together by hand: Altair copies and checks all of a stack again for each chart that joins it.
    """
    spec: dict[str, Any] = {
        "vconcat": list(panels),
        "spacing": 6,
        "resolve": {"scale": {"x": "shared", "color": "independent", "strokeDash": "independent"}},
        "config": {
            "view": {"strokeOpacity": 0.35},
            "axis": {"labelFontSize": 11, "titleFontSize": 11, "grid": True, "gridOpacity": 0.5},
            "title": {"fontSize": 12, "anchor": "start", "offset": 4},
        },
    }
    spec["params"] = [crosshair_parameter(names(spec, AIMS))]
    return spec


def _overlays(engines: tuple[Series, ...], x: alt.X, scene: Scene, *, arrow: bool) -> list[alt.Chart]:
    """
    A vertical rule for each event, with its text on hover; in the first panel a triangle at the top to aim at.

    On elapsed time a rule has the colour of its line. Where the scene has gaps: a shade over each, with its reason on
    hover.
    """
    events = alt.Chart(alt.NamedData("events"))
    drawn = alt.condition("datum.text !== ''", alt.value(1), alt.value(0))
    tips = [alt.Tooltip("when:N", title="event at"), alt.Tooltip("text:N", title="what happened")]
    rule = events.mark_rule(strokeWidth=1.2, strokeDash=[2, 3], color=NEUTRAL)
    if scene.elapsed:
        tips.insert(0, alt.Tooltip("name:N", title="window"))
        rule = rule.encode(color=_colour(engines))
    marks = [rule.encode(x=x, tooltip=tips, opacity=drawn)]
    if arrow:
        aim = events.mark_point(shape="triangle-down", filled=True, size=90, color=NEUTRAL)
        marks.append(aim.encode(x=x, y=alt.value(4), tooltip=tips, opacity=drawn))
    if scene.gaps:
        shade = alt.Chart(alt.NamedData("gaps"))
        reason = [alt.Tooltip("when:N", title="no data"), alt.Tooltip("text:N", title="why")]
        marks.insert(0, shade.mark_rect(color=NEUTRAL, opacity=0.16).encode(x=x, x2="te:T", tooltip=reason))
    return marks
