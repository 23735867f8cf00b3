"""What the runs say in a sentence: where one engine overtakes the other, how sure that is, and the ratio at a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from views.loadtest_data import Run
from views.palette import Series


def draw(runs: Sequence[Run], series: Mapping[str, Series]) -> None:
    """Draw."""
