"""
The time range of the History page: what its URL says, and where zooming and panning lead.

`range` is one of `PRESETS` and ends now; `from` and `to` (ISO 8601, UTC) name a fixed range and win over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from views.urlstate import LONGEST, BadRangeError, Window, frozen_window, iso

EVERYTHING = "all"
PRESETS: dict[str, timedelta | None] = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    EVERYTHING: None,
}
DEFAULT = "24h"
SHORTEST = timedelta(seconds=10)  # a few samples: closer zooming shows nothing new
ZOOM_OUT = 3


@dataclass(frozen=True, slots=True)
class Extent:
    """From when to when the store has data; None: it has none."""

    oldest: datetime | None
    newest: datetime | None


@dataclass(frozen=True, slots=True)
class Range:
    """A window and the preset that it came from; None for a fixed range."""

    window: Window
    preset: str | None


def read(parameters: Mapping[str, str], extent: Extent, now: datetime) -> Range:
    """The range that a query string names. Raises `BadRangeError` with a message for a person."""
    fixed = frozen_window(parameters)
    if fixed is not None:
        return Range(fixed, None)
    name = parameters.get("range", DEFAULT)
    if name not in PRESETS:
        raise BadRangeError(f"range={name} is not one of {', '.join(PRESETS)}")
    return preset(name, extent, now)


def preset(name: str, extent: Extent, now: datetime) -> Range:
    """
    The range of a preset. Its end is rounded down, so that all viewers ask the same question for a while.

    The range of everything goes from the oldest to the newest row; in an empty store it is the last day.
    """
    length = PRESETS[name]
    if length is None and extent.oldest is not None and extent.newest is not None:
        end = max(extent.newest, extent.oldest + SHORTEST) + timedelta(seconds=1)
        return Range(Window(extent.oldest.replace(microsecond=0), end.replace(microsecond=0), live=False), name)
    length = length or timedelta(hours=24)
    step = max(2, min(60, int(length.total_seconds() / 400)))
    end = datetime.fromtimestamp(int(now.timestamp()) // step * step, UTC)
    return Range(Window(end - length, end, live=False), name)


def parameters_of(window: Window) -> dict[str, str]:
    """The query string of a fixed range."""
    return {"from": iso(window.start), "to": iso(window.end)}


def chosen(first_milliseconds: float, last_milliseconds: float) -> Window | None:
    """The range between two moments on a time axis (ms since 1970, in any order); None where it is a mere click."""
    low, high = sorted((first_milliseconds, last_milliseconds))
    try:
        start, end = (datetime.fromtimestamp(value / 1000, UTC).replace(microsecond=0) for value in (low, high))
    except (ValueError, OverflowError, OSError):
        return None
    if end <= start:
        return None
    if end - start < SHORTEST:
        end = start + SHORTEST
    return Window(start, end, live=False)


def zoomed_out(window: Window, extent: Extent, now: datetime) -> Window:
    """A range three times as long around the same middle, not beyond the data or what is shown already."""
    length = window.end - window.start
    longer = min(length * ZOOM_OUT, LONGEST)
    start = window.start - (longer - length) / 2
    end = start + longer
    if (latest := max(now, window.end)) < end:
        start, end = start - (end - latest), latest
    return Window(max(start, min(extent.oldest or window.start, window.start)), end, live=False)


def panned(window: Window, direction: int, extent: Extent, now: datetime) -> Window | None:
    """The range half a length earlier (-1) or later (+1); None where there is nothing more in that direction."""
    shift = (window.end - window.start) / 2
    if direction > 0:
        shift = min(shift, now - window.end)
    elif extent.oldest is None or window.start <= extent.oldest:
        return None
    if shift < timedelta(seconds=1):
        return None
    return Window(window.start + direction * shift, window.end + direction * shift, live=False)
