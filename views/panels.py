"""What a chart of a stack is, and what all charts of one share: `views.marks` and `views.crosshair` draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from views import formatting

HOST_KEY = "h"  # the host among the devices of the data set "parts"
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
    `elapsed`: times count from the beginning of each line, not from 1970; `r` tells the lines of one series apart
    (0: its only one), and each event belongs to a series.
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


def x_time(scene: Scene, field: str = "ts", *, last: bool) -> alt.X:
    """
    The time of a row, on the UTC scale that the stack shares; `last`: in the panel that carries the axis' title.

    Every layer of that panel names the title: one without would take it from the others.
    """
    return alt.X(f"{field}:T", title=scene.time_title if last else None, scale=alt.Scale(type="utc"))


def step_parameters(grid_seconds: float) -> list[dict[str, Any]]:
    """The parameters of a specification whose scene has no width of a step."""
    return [
        {"name": "step", "value": grid_seconds * 1000},
        {"name": "step_words", "value": formatting.step(grid_seconds)},
    ]
