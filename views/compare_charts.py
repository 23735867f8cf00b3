"""
The charts of the Compare page: windows laid over each other on elapsed time, and how their figures are distributed.

Each window is a line of its own colour and dash: its engine's, unless another window has that already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa

from views import compare_events, history_charts, marks
from views.compare_sides import Side
from views.compare_windows import letter
from views.palette import DASHES, Series, dash_of, key_of
from views.panels import Panel, Scene

PANELS = (
    Panel("generation", "Generation throughput", "tok/s", "lines", "engine", "gen"),
    Panel("prompt", "Prompt throughput, computed", "tok/s", "lines", "engine", "prompt"),
    Panel("running", "Requests running", "requests", "lines", "engine", "run"),
    Panel("waiting", "Requests waiting", "requests", "lines", "engine", "wait"),
    Panel("kv", "KV cache in use", "%", "lines", "engine", "kv"),
    Panel("gpu", "GPU memory held by the engine", "GiB", "lines", "memory", "gpu"),
    Panel("host", "Host memory, resident set of the engine", "GiB", "lines", "host", "host"),
    Panel("power", "Power of the engine's GPUs", "W", "lines", "power", "power"),
)
# Elapsed time in words, only the units that are not 0: what 00:02 means would be guessed.
_LABELS = "trim({}) || '0'".format(
    " + ".join(
        f"(floor(datum.value / {size}){rest} ? floor(datum.value / {size}){rest} + ' {unit} ' : '')"
        for unit, size, rest in (
            ("d", 86_400_000, ""),
            ("h", 3_600_000, " % 24"),
            ("min", 60_000, " % 60"),
            ("s", 1000, " % 60"),
        )
    )
)
SPREAD_TITLES = {
    "generation": ("Generation throughput while a request runs", "tok/s"),
    "ttft": ("TTFT", "s"),
    "tpot": ("TPOT", "s"),
    "itl": ("ITL", "s"),
    "e2e": ("E2E latency", "s"),
}


def colours(sides: Sequence[Side], places: Mapping[str, int]) -> tuple[Series, ...]:
    """A colour and dash for each window: its engine's (`places` by engine_id), or the next that is free."""
    taken: set[int] = set()
    found: list[Series] = []
    for n, side in enumerate(sides):
        wanted = places.get(side.engine_id or "", 0) % len(DASHES)
        place = wanted if wanted not in taken else next(free for free in range(len(DASHES)) if free not in taken)
        taken.add(place)
        found.append(Series(key_of(place), side.chosen.text(), f"{letter(n)} {side.title}", place))
    return tuple(found)


def overlay(sides: Sequence[Side], series: Sequence[Series]) -> tuple[dict[str, Any], dict[str, pa.Table], str]:
    """
    The stack of overlaid lines: its specification, its data sets, and what it shows in words.

    Panels that no window has a value for are left out. Empty without any line.
    """
    made = {
        name: _joined(sides, series, lambda side, name=name: side.lines.get(name))  # type: ignore[misc]
        for name in ("engine", "memory", "host", "power")
    }
    panels = tuple(
        panel
        for panel in PANELS
        if panel.field in made[panel.dataset] and made[panel.dataset][panel.field].notna().any()
    )
    if not panels:
        return {}, {}, ""
    longest = max(stretch.seconds for side in sides for stretch in side.stretches)
    grid = float(max(2, round(longest / 160)))
    told = [(one, side.stretches) for side, one in zip(sides, series, strict=True) if side.stretches]
    spec = _overlay_spec(
        tuple(sorted(series, key=lambda one: one.place)), tuple(panel.key for panel in panels),
        tuple((one.key, letter(n)) for n, one in enumerate(series) if sides[n].stretches), grid,
    )  # fmt: skip
    made["window"] = pd.DataFrame({"ts": [0.0, longest * 1000]})
    made |= compare_events.frames(told, longest)
    names = "; ".join(f"{panel.title} in {panel.unit}" for panel in panels)
    lines = ", ".join(one.label for one in series)
    words = f"{len(panels)} charts over elapsed time, a line for each window: {lines}. Charts: {names}."
    return spec, {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in made.items()}, words


@lru_cache(maxsize=64)
def _overlay_spec(
    series: tuple[Series, ...], keys: tuple[str, ...], rows: tuple[tuple[str, str], ...], grid_seconds: float
) -> dict[str, Any]:
    panels = [panel for panel in PANELS if panel.key in keys]
    scene = Scene((), grid_seconds, spread=True, label_expression=_LABELS, elapsed=True)
    last = len(panels) - 1
    charts = [marks.panel_chart(panel, series, scene, first=False, last=n == last) for n, panel in enumerate(panels)]
    return marks.stack([history_charts.states_panel(rows, scene, last=False), *charts])


def _joined(sides: Sequence[Side], series: Sequence[Series], of: Callable[[Side], pd.DataFrame | None]) -> pd.DataFrame:
    """The rows of all windows as one data set, `s` being the key of the window."""
    parts = [
        frame.assign(s=one.key)
        for side, one in zip(sides, series, strict=True)
        if (frame := of(side)) is not None and len(frame)
    ]
    if not parts:
        return pd.DataFrame({"ts": pd.Series(dtype="float64"), "s": pd.Series(dtype="object")})
    joined = pd.concat(parts, ignore_index=True)
    values = {name: "float32" for name in joined.columns if name not in ("ts", "s")}
    return joined.astype({**values, "s": "category"})


def spread(
    key: str, sides: Sequence[Side], series: Sequence[Series]
) -> tuple[dict[str, Any], dict[str, pa.Table], str]:
    """
    The cumulative distribution of one figure in all windows: specification, data, words. Empty without any value.
    """
    rows = _joined(sides, series, lambda side: side.spread.get(key))
    if "value" not in rows or rows.empty:
        return {}, {}, ""
    title, unit = SPREAD_TITLES[key]
    there = tuple(one for one in series if one.key in set(rows["s"]))
    kinds = frozenset(rows["bounds"].astype(bool))
    spec = _spread_spec(title, unit, tuple(sorted(there, key=lambda one: one.place)), kinds)
    words = f"Cumulative distribution of {title} in {unit}: {', '.join(one.label for one in there)}."
    return spec, {"spread": pa.Table.from_pandas(rows, preserve_index=False)}, words


@lru_cache(maxsize=64)
def _spread_spec(title: str, unit: str, series: tuple[Series, ...], kinds: frozenset[bool]) -> dict[str, Any]:
    """`kinds`: whether there are lines known at all values (False), at the bounds of a histogram (True), or both."""
    places = range(max(one.place for one in series) + 1)
    domain = [key_of(place) for place in places]
    names = "{" + ", ".join(f"'{one.key}': {one.label!r}" for one in series) + "}"
    rows = alt.Chart(alt.NamedData("spread")).transform_calculate(name=f"{names}[datum.s]", percent="datum.share * 100")
    x = alt.X("value:Q", title=unit, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6))
    y = alt.Y("percent:Q", title="% at or below", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("name:N", title="window"),
        alt.Tooltip("percent:Q", title="% at or below", format=".1f"),
        alt.Tooltip("value:Q", title=unit, format=",.4~r"),
    ]
    looks = {
        "color": alt.Color("s:N", scale=alt.Scale(domain=domain), legend=None),
        "strokeDash": alt.StrokeDash(
            "s:N", scale=alt.Scale(domain=domain, range=[list(dash_of(place)) for place in places]), legend=None
        ),
        "order": "value:Q",
    }
    exact = rows.transform_filter("datum.bounds === 0")
    bounds = rows.transform_filter("datum.bounds === 1")
    lines: list[alt.Chart] = []
    if False in kinds:
        lines.append(exact.mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y, **looks))
    if True in kinds:
        lines.append(bounds.mark_line(strokeWidth=1.8).encode(x=x, y=y, **looks))
        lines.append(bounds.mark_point(size=14, filled=True).encode(x=x, y=y, color=looks["color"]))
    aim = rows.mark_point(size=60, opacity=0).encode(x=x, y=y, tooltip=tips)
    chart = (
        alt.layer(*lines, aim)
        .properties(height=260, title=title)
        .configure_title(fontSize=12, anchor="start", offset=4)
        .configure_view(strokeOpacity=0.35)
        .configure_axis(labelFontSize=11, titleFontSize=11, gridOpacity=0.5)
    )
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("$schema", None)
    return spec


def overlay_csv(sides: Sequence[Side]) -> bytes:
    """The overlaid lines as CSV: a row a window, repeat of a load test, moment and quantity, units in each row."""
    parts = []
    for place, side in enumerate(sides):
        for panel in PANELS:
            frame = side.lines.get(panel.dataset)
            if frame is None or panel.field not in frame:
                continue
            rows = frame.loc[frame[panel.field].notna()]
            parts.append(
                pd.DataFrame(
                    {
                        "window": letter(place),
                        "engine": side.title,
                        "repeat": rows["r"].where(rows["r"] > 0).astype("Int64"),
                        "elapsed_seconds": rows["ts"] / 1000,
                        "quantity": panel.title,
                        "unit": panel.unit,
                        "value": rows[panel.field],
                        "lowest": rows[f"{panel.field}_lo"],
                        "highest": rows[f"{panel.field}_hi"],
                    }
                )
            )
    columns = ["window", "engine", "repeat", "elapsed_seconds", "quantity", "unit", "value", "lowest", "highest"]
    text: str = (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)).to_csv(index=False)
    return text.encode()
