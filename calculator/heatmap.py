"""
Which combinations of context length and concurrent users fit: a planner asked along the edges of the answer.

The planner decides; this file only asks it. A longer context or one more user never needs less memory, so it is
enough to find, for each number of users, where "fits" and "may fit" end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calculator.model import Fits, MemoryPlan

Planner = Callable[[int, int], MemoryPlan]  # (context tokens of one user, users) -> plan


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair and its answer."""

    context_tokens: int
    users: int
    fits: Fits


def heat_map(planner: Planner, contexts: Sequence[int], users: Sequence[int]) -> tuple[Cell, ...]:
    """
    The cells of all pairs, row by row; both axes are taken in rising order.

    Asks `planner` about as often as there are rows and columns together, not once a cell. Whatever it raises goes
    through.
    """
    asked: dict[tuple[int, int], Fits] = {}
    lengths = sorted(set(contexts))

    def ask(place: int, count: int) -> Fits:
        key = lengths[place], count
        if key not in asked:
            asked[key] = fits_together(planner(*key), count)
        return asked[key]

    cells: list[Cell] = []
    sure, possible = len(lengths), len(lengths)  # how many of the lengths fit, and how many may
    for count in sorted(set(users)):
        while possible and ask(possible - 1, count) == Fits.NO:
            possible -= 1
        sure = min(sure, possible)
        while sure and ask(sure - 1, count) != Fits.YES:
            sure -= 1
        cells += [
            Cell(length, count, Fits.YES if n < sure else Fits.MAYBE if n < possible else Fits.NO)
            for n, length in enumerate(lengths)
        ]
    return tuple(cells)


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
