"""
The crosshair of a stack of charts: a rule at the pointer, in all charts at once, with every value there.

Two layers a chart. The rules at all steps carry the values and are never seen; a move of the pointer changes
nothing about them, so that their texts are made once. The rule that is seen is the one step pointed at.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from views.palette import NEUTRAL, Series
from views.panels import HOST_KEY, Panel, Scene, x_time

CROSSHAIR = "hover"
AIMS = "at_"  # how the names of the layers begin that the pointer finds


def tooltip_text(column: str, unit: str) -> str:
    """A Vega expression: the value of a column with its unit."""
    return f"format(datum['{column}'], ',.4~r') + ' {unit}'"


def elapsed_text(milliseconds: str) -> str:
    """A Vega expression: elapsed time as days, hours, minutes and seconds."""
    days = f"floor(({milliseconds}) / 86400000)"
    return f"({days} ? {days} + ' d ' : '') + utcFormat({milliseconds}, '%H:%M:%S')"


def crosshair_parameter(views: list[str]) -> dict[str, Any]:
    """The parameter that all panels share. To be declared once for the stack: Altair would declare it a panel."""
    select = {"type": "point", "on": "pointermove", "clear": "pointerout", "nearest": True, "fields": ["at"]}
    return {"name": CROSSHAIR, "select": select, "views": views}


def crosshair(
    panel: Panel, engines: tuple[Series, ...], scene: Scene, data: alt.Chart, *, last: bool
) -> list[alt.Chart]:
    """The layers of a panel: unseen rules at every step of the time axis with every value there, and the seen one."""
    series, columns, keys = _readouts(panel, engines, scene)
    rows = at_step(data, scene)
    if panel.shape == "parts":
        rows = rows.transform_filter("datum.s !== 'total'")
        rows = rows.transform_calculate(size="isValid(datum.hi) ? datum.hi - datum.lo : null")
    ends = ("_lo", "_hi") if scene.spread and panel.shape != "parts" else ()
    # One row a series and step first: several rows of a step, or several lines of a series, have one range together.
    ops = {"": "mean", "_lo": "min", "_hi": "max"}
    folded = [column + end for column in columns for end in ("", *ends)]
    together = [
        alt.AggregatedFieldDef(**{"op": ops[end], "field": column + end, "as": column + end})
        for column in columns
        for end in ("", *ends)
    ]
    rows = rows.transform_calculate(who=series)
    if panel.quantity is not None:  # percentiles can't be averaged: of several in a step, the newest is told
        rows = rows.transform_joinaggregate(newest="max(ts)", groupby=["at", "who"])
        rows = rows.transform_filter("datum.ts === datum.newest")
    rows = rows.transform_aggregate(together, groupby=["at", "who"])
    rows = rows.transform_fold(folded, as_=["what", "v"]).transform_calculate(k="datum.who + '_' + datum.what")
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
    aims = rows.mark_rule(opacity=0).encode(x=x_time(scene, "at", last=last), tooltip=tips)
    return [aims.properties(name=f"{AIMS}{panel.key}"), pointed_at()]


def pointed_at() -> alt.Chart:
    """
    A rule at the step pointed at.

    Its place is looked up on the shared axis: rows of its own would be a part of what the axis spans, which is
    worked out anew, with all that is drawn, whenever they change.
    """
    there = f"{CROSSHAIR} && isValid({CROSSHAIR}.at)"
    rule = alt.Chart(alt.sequence(0, 1)).mark_rule(
        x=alt.ExprRef(f"{there} ? scale('x', {CROSSHAIR}.at[0]) : 0"),
        opacity=alt.ExprRef(f"{there} ? 0.65 : 0"),
        strokeWidth=1,
        color=NEUTRAL,
    )
    shown: alt.Chart = rule.encode(y=alt.value(0), y2=alt.value("height"))
    return shown


def at_step(data: alt.Chart, scene: Scene) -> alt.Chart:
    """The rows of a data set with `at`, the middle of their step of the time axis."""
    step = scene.step
    shown: alt.Chart = data.transform_calculate(at=f"floor(datum.ts / {step}) * {step} + {step} / 2")
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
