"""The sentences of a crossover. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from comparison.curves import AtLoad, Crossing, Measure

FEWEST_REPEATS = 3


def crossing(found: Crossing, levels: Sequence[AtLoad], names: Mapping[str, str], measure: Measure) -> str:
    """Who overtakes whom where, with both leads at the ends of the range."""
    by_load = {level.load: level for level in levels}
    to, other = names[found.to], names["first" if found.to == "second" else "second"]
    if found.by == found.after + 1:
        where = f"at {at(found.by, measure)}"
    else:
        where = f"between {found.after:g} and {at(found.by, measure)}"
    text = f"{to} overtakes {other} {where}: at {found.after:g} {other} is ahead by {_lead(by_load[found.after])}, "
    text += f"at {found.by:g} {to} by {_lead(by_load[found.by])}."
    if found.line is not None and found.by != found.after + 1:
        text += (
            f" A line through the means meets at about {found.line:.2g}; nothing between the measured loads was run."
        )
    return text


def one_ahead(levels: Sequence[AtLoad], decided: Sequence[AtLoad], names: Mapping[str, str], measure: Measure) -> str:
    """One side is ahead wherever anything is decided: a floor for the other."""
    side = decided[0].ahead
    leader, other = names[side], names["first" if side == "second" else "second"]
    leads = [_lead_value(level) for level in decided]
    if len(decided) < len(levels):
        text = f"{leader} is ahead at {listed([level.load for level in decided])} {measure.load}, by {_span(leads)}."
        return text + left_open(levels, names, measure, ())
    if len(levels) == 1:
        return f"{leader} is ahead at {at(levels[0].load, measure)} by {_lead(levels[0])}; no other load was measured."
    text = f"{leader} is ahead at every measured load from {levels[0].load:g} to {at(levels[-1].load, measure)}, by "
    text += f"{_span(leads)}. If {other} overtakes it at all, it does so above {levels[-1].load:g}"
    return text + (f" or below {levels[0].load:g}." if levels[0].load > 1 else ".")


def left_open(
    levels: Sequence[AtLoad], names: Mapping[str, str], measure: Measure, crossings: Sequence[Crossing]
) -> str:
    """What the loads that are not decided leave open."""
    undecided = [level.load for level in levels if level.ahead == "open"]
    if not undecided:
        return ""
    why = {level.ratio.reason for level in levels if level.ahead == "open"}
    text = f" At {listed(undecided)} nothing is decided: "
    text += "the repeats scatter more than the two differ" if why == {None} else _reasons(why)
    last = [level for level in levels if level.ahead != "open"][-1]
    if undecided[-1] > last.load and not crossings:
        other = names["first" if last.ahead == "second" else "second"]
        text += f", so whether {other} overtakes above {last.load:g} is open"
    return text + "."


def undecided(levels: Sequence[AtLoad], names: Mapping[str, str], measure: Measure) -> str:
    """Nothing is decided, and why."""
    loads = f"{levels[0].load:g} to {at(levels[-1].load, measure)}" if len(levels) > 1 else at(levels[0].load, measure)
    why = {level.ratio.reason for level in levels}
    text = f"Which of {names['first']} and {names['second']} is ahead at {loads} is not decided: "
    if why == {None}:
        return text + "the repeats scatter more than the two differ."
    text += f"{_reasons(why)}."
    signs = [(level.load, (level.ratio.estimate or 1.0) > 1) for level in levels if level.ratio.estimate]
    higher = measure.better == "higher"
    ahead = [(load, "second" if up == higher else "first") for load, up in signs]
    if ahead and all(side == ahead[0][1] for _, side in ahead):
        text += f" By its figures alone {names[ahead[0][1]]} is ahead at each of them."
    elif ahead and (change := _single_change(ahead)):
        text += f" By the figures alone {names[change[1]]} is ahead from {at(change[0], measure)} on."
    few = min(n for level in levels for n in level.ratio.n) < FEWEST_REPEATS
    return text + (f" Measure at least {FEWEST_REPEATS} repeats." if few else " More repeats may decide it.")


def _single_change(ahead: Sequence[tuple[float, str]]) -> tuple[float, str] | None:
    changes = [after for before, after in pairwise(ahead) if before[1] != after[1]]
    return changes[0] if len(changes) == 1 else None


def basis(levels: Sequence[AtLoad]) -> str:
    """How many repeats it rests on."""
    counts = {n for level in levels for n in level.ratio.n}
    repeats = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    one = counts == {1}
    text = f"({repeats} repeat{'' if one else 's'} of each load"
    return text + ("; 95 % intervals.)" if any(level.ratio.has_interval for level in levels) else ".)")


def compared(level: AtLoad, names: tuple[str, str], measure: Measure) -> str:
    """The ratio at one load, with its interval or why there is none."""
    ratio = level.ratio
    text = f"{names[1]} has {ratio.estimate:.2f} times the {measure.name} of {names[0]}"
    if ratio.low is not None and ratio.high is not None:
        return f"{text} ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{text} (no interval: {ratio.reason})"


def _lead_value(level: AtLoad) -> float:
    """By how much the higher of the two is above the lower, as a share of the lower."""
    ratio = level.ratio.estimate or 1.0
    return max(ratio, 1 / ratio) - 1


def _lead(level: AtLoad) -> str:
    ratio = level.ratio
    low, high = ratio.low or 1.0, ratio.high or 1.0
    ends = (low - 1, high - 1) if (ratio.estimate or 1.0) >= 1 else (1 / high - 1, 1 / low - 1)
    return f"{_percent(_lead_value(level))} % ({_percent(ends[0])} % to {_percent(ends[1])} %)"


def _percent(share: float) -> str:
    """A share in percent: whole, but with two digits below 10, so that what is above 0 never reads as 0."""
    percent = 100 * share
    return f"{percent:.0f}" if abs(percent) >= 10 else f"{percent:.2g}"


def _span(leads: Sequence[float]) -> str:
    least, most = f"{min(leads):.0%}", f"{max(leads):.0%}"
    return (least if least == most else f"{least} to {most}").replace("%", " %")


def _reasons(why: Collection[str | None]) -> str:
    return "; ".join(sorted(each or "the repeats scatter more than the two differ" for each in why))


def at(load: float, measure: Measure) -> str:
    """`1 user`, `4 users`."""
    return f"{load:g} {measure.load.removesuffix('s') if load == 1 and measure.load == 'users' else measure.load}"


def listed(loads: Sequence[float]) -> str:
    """`1, 2 and 4`."""
    words = [f"{load:g}" for load in loads]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
