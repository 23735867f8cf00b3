"""Checks of what a reader passes to a named query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from store.protocol import Parameter, UnknownQueryError

ParameterKind = Literal["time", "text", "seconds", "count", "index", "points"]
Value = datetime | str | float | int | None

MIN_POINTS, MAX_POINTS = 10, 2000
MAX_COUNT = 100_000
MAX_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Accepts:
    """One parameter of a named query: its kind, its default, and whether it has to be given."""

    kind: ParameterKind
    default: Value = None
    required: bool = False


def check(query: str, accepted: Mapping[str, Accepts], given: Mapping[str, Parameter]) -> dict[str, Value]:
    """
    Values of all parameters of a query, defaults filled in.

    Raises `UnknownQueryError` for a name the query does not take, one that is missing, or a value of
    another type. `points` is clamped to 10..2000, counts, indices and seconds to what is sensible.
    """
    unknown = sorted(set(given) - set(accepted))
    if unknown:
        takes = ", ".join(accepted) or "no parameters"
        raise UnknownQueryError(f"query {query!r} does not take {', '.join(unknown)}; it takes {takes}")
    values: dict[str, Value] = {}
    for name, accepts in accepted.items():
        if given.get(name) is not None:
            values[name] = _convert(query, name, accepts.kind, given[name])
        elif accepts.required:
            raise UnknownQueryError(f"query {query!r} needs {name}")
        else:
            values[name] = accepts.default
    return values


def _convert(query: str, name: str, kind: ParameterKind, value: Parameter) -> Value:
    if kind == "time":
        return parse_time(value, f"query {query!r}: {name}")
    if kind == "text":
        if isinstance(value, str):
            return value
        raise UnknownQueryError(f"query {query!r}: {name} must be text, not {value!r}")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise UnknownQueryError(f"query {query!r}: {name} must be a number, not {value!r}")
    if kind == "seconds":
        if value <= 0:
            raise UnknownQueryError(f"query {query!r}: {name} must be more than 0 seconds, not {value!r}")
        return float(min(value, MAX_SECONDS))
    if kind == "points":
        return int(min(max(value, MIN_POINTS), MAX_POINTS))
    return int(min(max(value, 0 if kind == "index" else 1), MAX_COUNT))


def parse_time(value: object, what: str) -> datetime:
    """An aware UTC datetime from one, or from ISO 8601 text with an offset. Raises `UnknownQueryError`."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise UnknownQueryError(
                f"{what} must be a time such as 2026-12-01T08:00:00Z, not {value!r} ({error})"
            ) from error
    if not isinstance(value, datetime):
        raise UnknownQueryError(f"{what} must be a time such as 2026-12-01T08:00:00Z, not {value!r}")
    if value.tzinfo is None:
        raise UnknownQueryError(
            f"{what} must say its time zone, as in 2026-12-01T08:00:00Z; {value.isoformat()} does not"
        )
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise UnknownQueryError(f"{what} is out of the calendar's range: {value.isoformat()}") from error
