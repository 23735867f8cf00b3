"""
Figures of two windows beside each other: difference, ratio, and how sure they are.

A figure knows how it came to be: a mean with a `Sample` that tells how much it scatters, a percentile that lies
somewhere between two bounds of a histogram, a total that is exact, or none with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from comparison import intervals
from comparison.intervals import Estimate, Sample

Direction = Literal["more", "less", "undecided"]
BOUNDS = "bounds of the histogram's buckets; how requests scatter is not in it"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one window, or the reason why there is none."""

    value: float | None
    source: str  # where it is from; for a figure that is missing: the reason and what to do
    absent: str | None = None  # a figure that is missing, in two or three words: "not offered by llama.cpp"
    sample: Sample | None = None  # how sure a mean is
    low: float | None = None  # a percentile from a histogram: the bucket that it lies in
    high: float | None = None  # None with a `low`: the last bucket, which has no upper bound
    flag: str | None = None  # what makes it not comparable, in a word or two: "shared"
    caution: str | None = None  # the same as a sentence


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure beside that of the baseline."""

    difference: Estimate  # in the unit of the figure
    ratio: Estimate
    direction: Direction | None  # None: no interval, nothing is decided


def missing(absent: str, reason: str) -> Figure:
    """A figure that is not there."""
    return Figure(None, reason, absent=absent)


def compare(baseline: Figure, other: Figure) -> Compared | None:
    """
    The other figure against the baseline's; None where one of them is missing or not comparable.

    Percentiles from histograms get the interval that their buckets allow, means that of their samples.
    """
    if baseline.value is None or other.value is None or baseline.flag or other.flag:
        return None
    if baseline.low is not None and other.low is not None:
        return _decided(*_from_buckets(baseline, other, baseline.value, other.value))
    first, second = _sample(baseline), _sample(other)
    return _decided(intervals.difference(first, second), intervals.ratio(first, second))


def _sample(figure: Figure) -> Sample:
    if figure.sample is not None and figure.sample.mean is not None:
        return figure.sample
    reason = "from a histogram, whose buckets bound it" if figure.low is not None else "one figure of the whole window"
    return Sample(figure.value, None, 0.0, 1, "one figure", f"{reason}: how much it scatters is not known")


def _from_buckets(baseline: Figure, other: Figure, value: float, other_value: float) -> tuple[Estimate, Estimate]:
    """Difference and ratio with the least and the greatest value that the two buckets allow."""
    low, high = baseline.low or 0.0, baseline.high if baseline.high is not None else math.inf
    other_low, other_high = other.low or 0.0, other.high if other.high is not None else math.inf
    apart = other_value - value
    open_ended = "the last bucket of the histogram has no upper bound"
    if math.isinf(high) or math.isinf(other_high):
        difference = Estimate(apart, None, None, None, BOUNDS, (1, 1), open_ended)
    else:
        difference = Estimate(apart, other_low - high, other_high - low, None, BOUNDS, (1, 1))
    estimate = other_value / value if value > 0 else None
    if estimate is None or low == 0 or math.isinf(high) or math.isinf(other_high):
        reason = (
            open_ended
            if math.isinf(high) or math.isinf(other_high)
            else "the first bucket of the histogram begins at 0"
        )
        return difference, Estimate(estimate, None, None, None, BOUNDS, (1, 1), reason)
    return difference, Estimate(estimate, other_low / high, other_high / low, None, BOUNDS, (1, 1))


def _decided(difference: Estimate, ratio: Estimate) -> Compared:
    """Which way the figures differ: by the ratio where it has an interval, else by the difference."""
    for estimate, even in ((ratio, 1.0), (difference, 0.0)):
        if estimate.low is not None and estimate.high is not None:
            direction: Direction = "more" if estimate.low > even else "less" if estimate.high < even else "undecided"
            return Compared(difference, ratio, direction)
    return Compared(difference, ratio, None)
