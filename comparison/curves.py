"""A figure of one engine against the load, one figure a repeat, and two engines at one load. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from comparison import intervals
from comparison.intervals import Estimate

Ahead = Literal["first", "second", "open"]


@dataclass(frozen=True, slots=True)
class Measure:
    """What is compared. `better` is more tokens per second but less latency; `load` names its unit, in the plural."""

    name: str = "output tokens per second"
    better: Literal["higher", "lower"] = "higher"
    load: str = "users"


@dataclass(frozen=True, slots=True)
class Curve:
    """One engine over loads: `values` holds one figure a repeat at each of them, None where it is not measurable."""

    label: str
    values: Mapping[float, Sequence[float | None]]
    left_out: tuple[str, ...] = ()  # stages that were not trusted, in words

    def sample(self, load: float) -> intervals.Sample:
        """Its repeats at a load."""
        return intervals.repeats(self.values.get(load, ()))


@dataclass(frozen=True, slots=True)
class AtLoad:
    """Both engines at one measured load. `ratio` is the second's mean over the first's, whichever is better."""

    load: float
    ratio: Estimate
    ahead: Ahead


@dataclass(frozen=True, slots=True)
class Crossing:
    """The side that is ahead changes after `after` and by `by`, both measured; `line`: where the means would meet."""

    after: float
    by: float
    to: Literal["first", "second"]
    line: float | None


def curve_of(
    label: str,
    stages: Iterable[Mapping[str, Any]],
    untrusted: Collection[int],
    value: Callable[[Mapping[str, Any]], float | None],
    load: Callable[[Mapping[str, Any]], float | None] = lambda stage: stage["concurrency"],
) -> Curve:
    """
    The curve of one engine from rows of `loadtest_stage`, without those whose `stage_id` is untrusted.

    `value` takes the figure from a row, `load` the load; a row without a load has no place on the curve.
    """
    values: dict[float, list[float | None]] = {}
    dropped: dict[float, int] = {}
    for stage in stages:
        at = load(stage)
        if at is None:
            continue
        if stage["stage_id"] in untrusted:
            dropped[float(at)] = dropped.get(float(at), 0) + 1
        else:
            values.setdefault(float(at), []).append(value(stage))
    left_out = tuple(
        f"{label} at {at:g}: {times} of {times + len(values.get(at, ()))} repeats failed their checks"
        for at, times in sorted(dropped.items())
    )
    return Curve(label, values, left_out)
