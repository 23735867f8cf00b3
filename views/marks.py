"""
One chart of a stack as Vega-Lite: its lines, bands or areas, the crosshair that all charts share, event marks.

`views.charts` stacks them for the Live page, `views.history_charts` for the History page. Data sets are named
here and made by `views.frames` and `views.history_frames`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from views import formatting
from views.palette import NEUTRAL, Series, dash_of, key_of

PANEL_HEIGHT = 92
HEAT_ROW_HEIGHT = 13
AXIS_WIDTH = 46
DEVICE_DASHES = {"solid": [1, 0], "dashed": [7, 3], "dotted": [2, 2], "dash-dotted": [9, 3, 2, 3]}
HOST_KEY = "h"  # the host among the devices of the data set "parts"
REST_OPACITY = {"other": 0.65, "driver": 0.3}
CROSSHAIR = "hover"
BAND_OPACITY, FEW_LINES = 0.18, 4  # the bands of many lines lie over each other
Shape = Literal["lines", "strokes", "parts", "devices", "heat", "total"]


@dataclass(frozen=True, slots=True)
class Stroke:
    """One of several lines an engine has in a panel: its column, its name, its dash pattern."""

    column: str
    word: str
    dash: tuple[int, ...] = (1, 0)


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
    quantity: str | None = None  # data rows with this latency quantity only
    strokes: tuple[Stroke, ...] = ()  # of the shape "strokes"
    bands: bool = True  # whether a band from the lowest to the highest value surrounds each line


@dataclass(frozen=True, slots=True)
class Scene:
    """
    What all panels of a stack share. `spread`: the crosshair tells the lowest and highest value of a step too;
    `elapsed`: times count from the beginning of each line, not from 1970.
    """

    devices: tuple[tuple[str, str], ...]  # (device key, name)
    grid_seconds: float | None  # width of a step; None: `step_parameters` bring it, and the specification serves all
    spread: bool = False
    label_expression: str | None = None  # of the time axis; None: time of day with seconds
    gaps: bool = False  # whether the data set "gaps" is drawn over each panel
    elapsed: bool = False

    @property
    def step(self) -> str:
        """A Vega expression: the width of a step in milliseconds."""
        return "step" if self.grid_seconds is None else f"{self.grid_seconds * 1000:g}"

    @property
    def step_words(self) -> str:
        """A Vega expression: the width of a step in words."""
        return "step_words" if self.grid_seconds is None else f"'{formatting.step(self.grid_seconds)}'"

    @property
    def time_title(self) -> str:
        """What the time axis says of itself."""
        return "elapsed time" if self.elapsed else "time (UTC)"


def tooltip_text(column: str, unit: str) -> str:
    """A Vega expression: the value of a column with its unit."""
    return f"format(datum['{column}'], ',.4~r') + ' {unit}'"


def elapsed_text(milliseconds: str) -> str:
    """A Vega expression: elapsed time as days, hours, minutes and seconds."""
    days = f"floor(({milliseconds}) / 86400000)"
    return f"({days} ? {days} + ' d ' : '') + utcFormat({milliseconds}, '%H:%M:%S')"


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


def x_time(scene: Scene, field: str = "ts", *, last: bool) -> alt.X:
    """
    The time of a row, on the UTC scale that the stack shares; `last`: in the panel that carries the axis' title.

    Every layer of that panel names the title: one without would take it from the others.
    """
    return alt.X(f"{field}:T", title=scene.time_title if last else None, scale=alt.Scale(type="utc"))


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
        window, *drawn, crosshair(panel, engines, scene, data, last=last), *_overlays(x, scene, arrow=first)
    )
    return marks.properties(height=height + 8 * (panel.shape == "parts"), title=panel.title)


def panel_marks(panel: Panel, engines: tuple[Series, ...], scene: Scene, data: alt.Chart, x: alt.X) -> list[alt.Chart]:
    """The visible layers of a panel."""
    y_axis = alt.Axis(tickCount=3, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH, format=",.6~g")
    scale = alt.Scale(domain=[0, 100]) if panel.unit == "%" else alt.Scale(zero=True, nice=True)
    y = alt.Y(f"{panel.field}:Q", title=panel.unit, axis=y_axis, scale=scale)
    # All places up to the last one drawn, so that an engine keeps its colour when others are hidden.
    places = range(max((series.place for series in engines), default=-1) + 1)
    domain = [key_of(place) for place in places]
    color = alt.Color("s:N", scale=alt.Scale(domain=domain), legend=None)
    low, high = alt.Y(f"{panel.field}_lo:Q"), f"{panel.field}_hi:Q"
    match panel.shape:
        case "lines":
            opacity = BAND_OPACITY if len(engines) <= FEW_LINES else BAND_OPACITY / 2
            dashes = alt.Scale(domain=domain, range=[list(dash_of(place)) for place in places])
            dash = alt.StrokeDash("s:N", scale=dashes, legend=None)
            band = data.mark_area(opacity=opacity).encode(x=x, y=low, y2=high, color=color)
            return [band, data.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, strokeDash=dash)]
        case "strokes":
            bands = [
                data.mark_area(opacity=BAND_OPACITY if len(engines) <= FEW_LINES else BAND_OPACITY / 2).encode(
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


def _readouts(
    panel: Panel, engines: tuple[Series, ...], scene: Scene
) -> tuple[str, tuple[str, ...], list[tuple[str, str, str]]]:
    """The column that tells a panel's series apart, the columns read, and `(series, column, name)` of each readout."""
    named = [(series.key, series.label) for series in engines]
    match panel.shape:
        case "strokes":
            keys = [(key, stroke.column, f"{label}, {stroke.word}") for key, label in named for stroke in panel.strokes]
            return "datum.s", tuple(stroke.column for stroke in panel.strokes), keys
        case "devices" | "heat":
            return "datum.d", (panel.field,), [(key, panel.field, name) for key, name in scene.devices]
        case "total":
            return "'all'", (panel.field,), [("all", panel.field, panel.title)]
        case "parts":
            rest = [("other", "other processes"), ("driver", "driver and unattributed")]
            keys = [(key, "size", name) for key, name in [*named, *rest[: 1 if panel.device == HOST_KEY else 2]]]
            return "datum.s", ("size",), keys
        case _:
            return "datum.s", (panel.field,), [(key, panel.field, label) for key, label in named]


def at_step(data: alt.Chart, scene: Scene) -> alt.Chart:
    """The rows of a data set with `at`, the middle of their step of the time axis."""
    step = scene.step
    shown: alt.Chart = data.transform_calculate(at=f"floor(datum.ts / {step}) * {step} + {step} / 2")
    return shown


def crosshair(panel: Panel, engines: tuple[Series, ...], scene: Scene, data: alt.Chart, *, last: bool) -> alt.Chart:
    """A rule at each step of the time axis; it shows at the pointer, in all panels at once, with every value there."""
    series, columns, keys = _readouts(panel, engines, scene)
    rows = at_step(data, scene)
    if panel.shape == "parts":
        rows = rows.transform_filter("datum.s !== 'total'")
        rows = rows.transform_calculate(size="isValid(datum.hi) ? datum.hi - datum.lo : null")
    ends = ("_lo", "_hi") if scene.spread and panel.shape != "parts" else ()
    folded = [column + end for column in columns for end in ("", *ends)]
    rows = rows.transform_fold(folded, as_=["what", "v"]).transform_calculate(k=f"{series} + '_' + datum.what")
    rows = rows.transform_filter("isValid(datum.v)").transform_pivot("k", value="v", groupby=["at"], op="mean")
    # A holder that is missing where the rest is known holds nothing in that place.
    base = "other" if panel.device == HOST_KEY else "driver"
    missing = f"isValid(datum.{base}_size) ? 'nothing' : 'not known'" if panel.shape == "parts" else "'not known'"
    texts = {}
    for n, (key, column, _) in enumerate(keys):
        value = f"{key}_{column}"
        text = tooltip_text(value, panel.unit)
        if ends:
            text += _spread_text(value, exact=panel.quantity is not None)
        texts[f"t{n}"] = f"isValid(datum['{value}']) ? {text} : {missing}"
    begin = f"datum.at - {scene.step} / 2"
    clock = elapsed_text(begin) if scene.elapsed else f"utcFormat({begin}, '%Y-%m-%d %H:%M:%S') + ' UTC'"
    when = f"{clock} + ', {'over' if panel.quantity else 'mean over'} ' + {scene.step_words}"
    rows = rows.transform_calculate(when=when, **texts)
    tips = [alt.Tooltip("when:N", title="from")]
    tips += [alt.Tooltip(f"t{n}:N", title=name) for n, (_, _, name) in enumerate(keys)]
    rule = rows.mark_rule(strokeWidth=1, color=NEUTRAL).properties(name=f"at_{panel.key}")
    shown: alt.Chart = rule.encode(x=x_time(scene, "at", last=last), tooltip=tips, opacity=AT_POINTER)
    return shown


def _spread_text(value: str, *, exact: bool) -> str:
    """The range of a value where there is one: of samples in a step, or the bucket that a percentile lies in."""
    low, high = f"datum['{value}_lo']", f"datum['{value}_hi']"
    if exact:
        return (
            f" + (isValid({low}) ? ' (in bucket ' + format({low}, ',.4~r') + "
            f"(isValid({high}) ? ' to ' + format({high}, ',.4~r') : ' and above') + ')' : '')"
        )
    return f" + ({high} > {low} ? ' (' + format({low}, ',.4~r') + ' to ' + format({high}, ',.4~r') + ')' : '')"


AT_POINTER = alt.condition(alt.selection_point(name=CROSSHAIR), alt.value(0.65), alt.value(0), empty=False)


def crosshair_parameter(views: list[str]) -> dict[str, Any]:
    """The parameter that all panels share. To be declared once for the stack: Altair would declare it a panel."""
    select = {"type": "point", "on": "pointermove", "clear": "pointerout", "nearest": True, "fields": ["at"]}
    return {"name": CROSSHAIR, "select": select, "views": views}


def step_parameters(grid_seconds: float) -> list[dict[str, Any]]:
    """The parameters of a specification whose scene has no width of a step."""
    return [
        {"name": "step", "value": grid_seconds * 1000},
        {"name": "step_words", "value": formatting.step(grid_seconds)},
    ]


def names(spec: dict[str, Any], prefix: str) -> list[str]:
    """Names of the layers that begin with `prefix`."""
    layers = [layer for chart in spec["vconcat"] for layer in chart["layer"]]
    return [layer["name"] for layer in layers if str(layer.get("name", "")).startswith(prefix)]


def stack(charts: Sequence[alt.LayerChart | alt.FacetChart]) -> dict[str, Any]:
    """Panels one below the other as a specification, with one time axis and one crosshair."""
    return stack_of([panel_dict(chart) for chart in charts])


def panel_dict(chart: alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    """One panel as a part of a specification."""
    spec: dict[str, Any] = chart.to_dict()
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
    spec["params"] = [crosshair_parameter(names(spec, "at_"))]
    return spec


def _overlays(x: alt.X, scene: Scene, *, arrow: bool) -> list[alt.Chart]:
    """
    A vertical rule for each event, with its text on hover; in the first panel a triangle at the top to aim at.

    Where the scene has gaps: a shade over each, with its reason on hover.
    """
    events = alt.Chart(alt.NamedData("events"))
    drawn = alt.condition("datum.text !== ''", alt.value(1), alt.value(0))
    tips = [alt.Tooltip("when:N", title="event at"), alt.Tooltip("text:N", title="what happened")]
    marks = [
        events.mark_rule(strokeWidth=1.2, strokeDash=[2, 3], color=NEUTRAL).encode(x=x, tooltip=tips, opacity=drawn)
    ]
    if arrow:
        aim = events.mark_point(shape="triangle-down", filled=True, size=90, color=NEUTRAL)
        marks.append(aim.encode(x=x, y=alt.value(4), tooltip=tips, opacity=drawn))
    if scene.gaps:
        shade = alt.Chart(alt.NamedData("gaps"))
        reason = [alt.Tooltip("when:N", title="no data"), alt.Tooltip("text:N", title="why")]
        marks.insert(0, shade.mark_rect(color=NEUTRAL, opacity=0.16).encode(x=x, x2="te:T", tooltip=reason))
    return marks
