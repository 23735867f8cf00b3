"""
Which combinations of context length and concurrent users fit: a planner asked once for each pair.

The planner decides; this file only asks it, and says of each cell what it answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calculator.model import Fits, MemoryPlan

Planner = Callable[[int, int], MemoryPlan]  # (context tokens of one user, users) -> plan


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair: `fits`, and how many bytes are free or missing on the tightest place (negative: missing)."""

    context_tokens: int
    users: int
    fits: Fits
    spare_bytes: int | None  # by the upper bounds; None where no capacity is stated


def heat_map(planner: Planner, contexts: Sequence[int], users: Sequence[int]) -> tuple[Cell, ...]:
    """
    The cells of all pairs, row by row in the order given.

    Whatever the planner raises goes through. Where an engine takes its memory up front (vLLM) a pair fits when
    the cache holds that many requests of that length at once, so `planner` is asked for exactly that.
    """
    return tuple(_cell(planner(context, count), context, count) for count in users for context in contexts)


def _cell(plan: MemoryPlan, context_tokens: int, users: int) -> Cell:
    places = [place for place in (*plan.devices, plan.host) if place.capacity_bytes is not None]
    spare = min(
        (place.capacity_bytes - place.total_bytes.high for place in places if place.capacity_bytes is not None),
        default=None,
    )
    return Cell(context_tokens, users, fits_together(plan, users), spare)


def fits_together(plan: MemoryPlan, users: int = 1) -> Fits:
    """
    Whether the whole plan fits: the worst of all places, and a cache that holds `users` requests of full length.

    A place without a stated capacity says nothing.
    """
    answers = [place.fits for place in (*plan.devices, plan.host) if place.fits is not None]
    if Fits.NO in answers:
        return Fits.NO
    if plan.max_concurrency is not None and plan.max_concurrency < users:
        return Fits.NO
    return Fits.MAYBE if Fits.MAYBE in answers else Fits.YES


def steps(low: int, high: int, count: int) -> list[int]:
    """About `count` whole numbers from `low` to `high`, each a like multiple of the one before, without doubles."""
    if count < 2 or low >= high:
        return [high]
    factor = (high / low) ** (1 / (count - 1))
    return sorted({round(low * factor**place) for place in range(count)} | {low, high})
