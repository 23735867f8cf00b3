"""Plain tables for the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def facts_text(title: str, facts: Mapping[str, Any]) -> str:
    """A title and one aligned line a fact, those of a part under its name; what is not known is left out."""
    known = {name: value for name, value in _flat(facts) if value not in (None, (), {}, [])}
    width = max((len(name) for name in known), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {text(value)}" for name, value in known.items())])


def _flat(facts: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{of}{name}.")
        else:
            yield f"{of}{name}", value


def table_text(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns under a header; the empty text when there are no rows."""
    if not rows:
        return ""
    cells = [list(header), *[[text(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def text(value: Any) -> str:
    """A value for a person: whole numbers without a fraction, "-" for unknown."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value))
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)
