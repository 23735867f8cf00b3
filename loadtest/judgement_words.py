"""Numbers in the sentences of judgements."""

from __future__ import annotations


def number(value: float) -> str:
    """Whole, with spaces between thousands: 12 345."""
    return f"{value:,.0f}".replace(",", " ")


def counted(count: int, one: str, more: str | None = None) -> str:
    """`1 request`, `2 requests`."""
    return f"{number(count)} {one if count == 1 else more or one + 's'}"


def share(fraction: float) -> str:
    """A percentage with at most one decimal below ten: 0.4 %, 62 %."""
    percent = fraction * 100
    return f"{percent:.0f} %" if percent >= 10 or percent == round(percent) else f"{percent:.1f} %"


def milliseconds(seconds: float) -> str:
    """`1.2 ms`, `41 ms`."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"
