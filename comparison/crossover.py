"""
At which load one engine overtakes another, how sure that is, and the ratio of the two at a load. Pure.

Two curves are compared only at loads that were measured on both. At each of them the ratio of the two means has a 95 %
interval over the repeats (`comparison.intervals`); a side is *ahead* there when the whole interval says so, and
otherwise nothing is decided. A crossing lies between the last load at which one side is ahead and the first one at
which the other is: these two are measured, what lies between them is not. So the statement is a range and never one
load, unless the two are neighbours (the edge: "at X" needs X - 1 measured the other way round). Where a side stays
ahead up to the highest load the statement is a floor: "if at all, above X".

A line through the means says where in the range the curves would meet, straight in the logarithms of ratio and load.
It is called a line through means and no measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from comparison import crossover_words as words
from comparison import intervals
from comparison.curves import Ahead, AtLoad, Crossing, Curve, Measure

Kind = Literal["crosses", "crosses several times", "first ahead", "second ahead", "undecided", "not comparable"]


@dataclass(frozen=True, slots=True)
class Crossover:
    """What can be said of two curves. `sentence` is complete, with its uncertainty and what it rests on."""

    kind: Kind
    levels: tuple[AtLoad, ...]
    crossings: tuple[Crossing, ...]
    sentence: str
    left_out: tuple[str, ...]  # what was not used and why


@dataclass(frozen=True, slots=True)
class RatioAt:
    """The ratio at one load, the second over the first: measured there, or its measured neighbours."""

    load: float
    measured: AtLoad | None
    below: AtLoad | None
    above: AtLoad | None
    sentence: str


def crossover(first: Curve, second: Curve, measure: Measure | None = None) -> Crossover:
    """Where one curve overtakes the other, with the sentence that says it."""
    measure = measure or Measure()
    levels = tuple(at_load(first, second, load, measure) for load in _common(first, second))
    left_out = (*first.left_out, *second.left_out, *_one_sided(first, second, measure))
    if not levels:
        text = f"{first.label} and {second.label} have no load in common with {measure.name} that may be compared."
        return Crossover("not comparable", (), (), text, left_out)
    decided = [level for level in levels if level.ahead != "open"]
    crossings = tuple(
        Crossing(one.load, other.load, other.ahead, _line(levels, one.load, other.load))
        for one, other in pairwise(decided)
        if one.ahead != other.ahead and other.ahead != "open"
    )
    names = {"first": first.label, "second": second.label}
    kind: Kind
    if not decided:
        kind, text = "undecided", words.undecided(levels, names, measure)
    elif not crossings:
        kind = "first ahead" if decided[0].ahead == "first" else "second ahead"
        text = words.one_ahead(levels, decided, names, measure)
    else:
        kind = "crosses" if len(crossings) == 1 else "crosses several times"
        text = " ".join(words.crossing(each, levels, names, measure) for each in crossings)
        if len(crossings) > 1:
            text = f"They cross {len(crossings)} times. {text}"
        text += words.left_open(levels, names, measure, crossings)
    return Crossover(kind, levels, crossings, f"{text} {words.basis(levels)}", left_out)


def at_load(first: Curve, second: Curve, load: float, measure: Measure | None = None) -> AtLoad:
    """Both at a load that was measured on both."""
    ratio = intervals.ratio(first.sample(load), second.sample(load))
    ahead: Ahead = "open"
    if ratio.low is not None and ratio.high is not None and (ratio.low > 1 or ratio.high < 1):
        higher = (measure or Measure()).better == "higher"
        ahead = "second" if (ratio.low > 1) == higher else "first"
    return AtLoad(load, ratio, ahead)


def ratio_at(first: Curve, second: Curve, load: float, measure: Measure | None = None) -> RatioAt:
    """The ratio of the two at a load; where that was not measured, those at its measured neighbours."""
    measure = measure or Measure()
    common = _common(first, second)
    names = (first.label, second.label)
    if load in common:
        level = at_load(first, second, load, measure)
        return RatioAt(
            load, level, None, None, f"At {words.at(load, measure)} {words.compared(level, names, measure)}."
        )
    below = max((each for each in common if each < load), default=None)
    above = min((each for each in common if each > load), default=None)
    low = None if below is None else at_load(first, second, below, measure)
    high = None if above is None else at_load(first, second, above, measure)
    if low is not None and high is not None:
        text = f"{words.at(load, measure)} were not measured. "
        text += f"At {low.load:g} {words.compared(low, names, measure)}; "
        text += f"at {high.load:g} {words.compared(high, names, measure)}."
    else:
        nearest = low or high
        text = f"{words.at(load, measure)} were not measured, nor anything {'above' if low else 'below'} it"
        text += "." if nearest is None else f": at {nearest.load:g} {words.compared(nearest, names, measure)}."
    return RatioAt(load, None, low, high, text)


def _common(first: Curve, second: Curve) -> list[float]:
    """Loads at which both have a figure, rising."""
    return sorted(
        load
        for load in set(first.values) & set(second.values)
        if first.sample(load).mean is not None and second.sample(load).mean is not None
    )


def _one_sided(first: Curve, second: Curve, measure: Measure) -> list[str]:
    common = set(_common(first, second))
    return [
        f"{words.listed(alone)} {measure.load}: only {curve.label} has figures there"
        for curve in (first, second)
        if (alone := sorted(load for load in curve.values if load not in common and curve.sample(load).n))
    ]


def _line(levels: Sequence[AtLoad], after: float, by: float) -> float | None:
    """Where a line through the mean ratios meets 1 between two loads; None where it does so more than once."""
    inside = [level for level in levels if after <= level.load <= by and level.ratio.estimate]
    points = [(math.log(level.load), math.log(level.ratio.estimate or 1.0)) for level in inside]
    meets = []
    for (x, y), (other_x, other_y) in pairwise(points):
        if y * other_y < 0:
            meets.append(math.exp(x + (other_x - x) * y / (y - other_y)))
    return meets[0] if len(meets) == 1 else None
