"""A plan as text for a terminal: one table a place, then what it means and the rules behind it."""

from __future__ import annotations

from calculator.document import PART_TITLES, PARTS, part_of
from calculator.heatmap import fits_together
from calculator.model import DevicePlan, Fits, Interval, MemoryPlan

_GIB, _MIB = 2**30, 2**20
_WORDS = {Fits.YES: "fits", Fits.NO: "does not fit", Fits.MAYBE: "may fit: it depends on where in the ranges it lies"}


def size(value_bytes: float) -> str:
    """Bytes in binary units: MiB with two decimals below 1 GiB, GiB above."""
    if abs(value_bytes) < _GIB:
        return f"{value_bytes / _MIB:,.2f} MiB"
    return f"{value_bytes / _GIB:,.2f} GiB"


def sizes(interval: Interval) -> str:
    """One figure, or both bounds where the rule gives a range."""
    return size(interval.low) if interval.exact else f"{size(interval.low)} to {size(interval.high)}"


def text(plan: MemoryPlan) -> str:
    """The whole plan."""
    lines = [f"{plan.model} on {plan.engine} {plan.engine_version}", ""]
    for place in (*plan.devices, plan.host):
        lines += [*_place(place), ""]
    lines += _totals(plan)
    if plan.remedies:
        lines += ["", "What would make it fit:", *(f"  {remedy}" for remedy in plan.remedies)]
    if plan.notes:
        lines += ["", "Rules:", *(f"  {note.rule}: {note.text} [{note.source}]" for note in plan.notes)]
    return "\n".join(lines)


def _place(place: DevicePlan) -> list[str]:
    capacity = "" if place.capacity_bytes is None else f", {size(place.capacity_bytes)}"
    lines = [f"{place.name}{capacity}"]
    if not place.total_bytes.high:
        return [*lines, "  nothing of the plan lies here; what the engine's processes use of their own is not planned"]
    for part in PARTS:
        bounds = part_of(place, part)
        if bounds.high:
            lines.append(f"  {PART_TITLES[part]:<40} {sizes(bounds):>28}")
    lines.append(f"  {'Total':<40} {sizes(place.total_bytes):>28}")
    if place.fits is not None:
        lines.append(f"  {_WORDS[place.fits]}")
    return lines


def _totals(plan: MemoryPlan) -> list[str]:
    lines = [f"Together: {_WORDS[fits_together(plan)]}"]
    if plan.kv_capacity_tokens is not None:
        lines.append(f"KV cache holds {plan.kv_capacity_tokens:,} tokens")
    if plan.max_concurrency is not None:
        lines.append(f"Requests of full length at once: {plan.max_concurrency:,.2f}")
    if plan.context_cells is not None:
        lines.append(f"Context cells: {plan.context_cells:,}")
    return lines
