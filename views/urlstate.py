"""What a page keeps in its query string besides its widgets: a frozen time range, and the link that shares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit

LONGEST = timedelta(days=3660)


class BadRangeError(ValueError):
    """`from` and `to` of a link do not make a time range; the message says why."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time range that is shown: aware UTC datetimes, and whether its end moves with the clock."""

    start: datetime
    end: datetime
    live: bool

    @property
    def seconds(self) -> float:
        """Length of the window in seconds."""
        return (self.end - self.start).total_seconds()


def live_window(minutes: int, step_seconds: int, now: datetime) -> Window:
    """
    The last `minutes` before `now`, its end rounded down to `step_seconds`.

    Rounding lets all viewers with one refresh interval ask the same question, so that one answer serves them.
    """
    step = max(1, step_seconds)
    end = datetime.fromtimestamp(int(now.timestamp()) // step * step, UTC)
    return Window(end - timedelta(minutes=minutes), end, live=True)


def frozen_window(parameters: Mapping[str, str]) -> Window | None:
    """
    The range that `from` and `to` of a query string name (ISO 8601; without a zone: UTC); None when neither is there.

    Raises `BadRangeError` with a message for a person.
    """
    first, last = parameters.get("from"), parameters.get("to")
    if first is None and last is None:
        return None
    if not first or not last:
        raise BadRangeError("the link has only one of from= and to=; a frozen view needs both")
    start, end = _moment("from", first), _moment("to", last)
    if end <= start:
        raise BadRangeError(f"to={last} is not after from={first}")
    if end - start > LONGEST:
        raise BadRangeError("the range between from= and to= is longer than ten years")
    return Window(start, end, live=False)


def _moment(name: str, text: str) -> datetime:
    try:
        # An unescaped "+00:00" arrives as " 00:00".
        moment = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text.strip())
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadRangeError(f"{name}={text} is not a time such as 2026-12-01T12:00:00Z") from error
    return utc


def share_link(
    page_url: str, window: Window, engines: Sequence[str], others: Mapping[str, Sequence[str]] | None = None
) -> str:
    """
    An absolute URL that shows `window` and `engines` to whoever opens it, however much later.

    `others` are further choices of the page, by the name that they have in the query string.
    """
    parts = urlsplit(page_url)
    choices = {"engines": engines, **(others or {})}
    query = [(name, value) for name, values in choices.items() for value in values]
    query += [("from", iso(window.start)), ("to", iso(window.end))]
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", urlencode(query), ""))


def iso(moment: datetime) -> str:
    """A moment as links carry it: ISO 8601 in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
