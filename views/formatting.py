"""
Figures as text. Every function takes ``None`` (and NaN) for "not known" and answers `MISSING`, never a zero.

Sizes are bytes in, binary units out; times are aware datetimes, shown in UTC.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

import humanize

MISSING = "\N{EN DASH}"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def known(value: float | None) -> bool:
    """Whether `value` is a figure at all: not None, not NaN, not infinite."""
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and thousands separators; integers keep all their places."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text and abs(value) < 1 else text


def rate(value: float | None) -> str:
    """A rate in tokens per second: one decimal below 100, none above."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:,.1f}" if 0 < abs(value) < 99.95 else f"{value:,.0f}"


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}" if value is not None and math.isfinite(value) else MISSING


def tokens(value: float | None) -> str:
    """A number of tokens, short: ``8,192`` stays exact, larger ones become ``218k`` or ``1.3M``."""
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    scaled, suffix = (value / 1e6, "M") if abs(value) >= 999_500 else (value / 1e3, "k")
    return f"{scaled:.1f}{suffix}" if scaled < 10 else f"{scaled:.0f}{suffix}"


def size(value_bytes: float | None) -> str:
    """Bytes in binary units: ``71.4 GiB``."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return MISSING
    return humanize.naturalsize(value_bytes, binary=True, format="%.1f").replace(" Bytes", " B").replace(" Byte", " B")


def cores(value: float | None) -> str:
    """CPU seconds per second, i.e. busy cores, to a hundredth; a little use never reads as none."""
    if value is None or not math.isfinite(value):
        return MISSING
    return "<0.01" if 0 < value < 0.005 else f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def fraction(value: float | None) -> str:
    """A share 0..1 as whole percent; a share that is neither none nor all never reads as 0 % or 100 %."""
    if value is None or not math.isfinite(value):
        return MISSING
    percent = value * 100
    if 0 < percent < 1:
        return "<1 %"
    if 99 < percent < 100:
        return ">99 %"
    return f"{percent:.0f} %"


def duration(seconds: float | None) -> str:
    """A latency or duration with its unit: microseconds are not distinguished from ``0.01 ms``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if abs(seconds) < 0.9995:
        return f"{number(seconds * 1000)} ms"
    return f"{number(seconds)} s"


def bucket(low_seconds: float | None, high_seconds: float | None) -> str:
    """The histogram bucket a percentile lies in, as its resolution: ``in bucket 0.25-0.5 s``."""
    if low_seconds is None:
        return "bucket not known"
    if high_seconds is None or not math.isfinite(high_seconds):
        return f"above {low_seconds:g} s, in the last bucket: no upper bound is known"
    return f"in bucket {low_seconds:g}\N{EN DASH}{high_seconds:g} s"


def age(seconds: float | None) -> str:
    """Elapsed time in its largest fitting unit, rounded down: ``3 s``, ``12 min``, ``5 h``, ``2 d``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    whole = max(0, int(seconds))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if whole >= unit:
            return f"{whole // unit} {name}"
    return f"{whole} s"


def step(seconds: float) -> str:
    """A width of time in the largest unit that divides it: ``2 h``, ``90 s``."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def clock(moment: datetime | None, now: datetime | None = None) -> str:
    """Time of day in UTC (``12:03:41 UTC``), with the date when it is not the day of `now`."""
    if moment is None:
        return MISSING
    utc = moment.astimezone(UTC)
    same_day = now is not None and now.astimezone(UTC).date() == utc.date()
    return f"{utc:%H:%M:%S} UTC" if same_day else f"{utc:%Y-%m-%d %H:%M:%S} UTC"
