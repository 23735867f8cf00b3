"""Which engine offers which quantity, from what the adapters declare: for the command line and the README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collectors.engines.base import Absence, Adapter
from store.model import QUANTITIES


def offers_document(adapters: Sequence[Adapter]) -> list[dict[str, Any]]:
    """One entry an engine: where it is looked for, how to start it, and each quantity with its source or reason."""
    document = []
    for adapter in adapters:
        quantities: dict[str, dict[str, Any]] = {}
        for quantity in QUANTITIES:
            offer = adapter.offers[quantity.name]
            if isinstance(offer, Absence):
                quantities[quantity.name] = {"offered": False, "reason": offer.reason, "remedy": offer.remedy}
            else:
                quantities[quantity.name] = {
                    "offered": True, "unit": quantity.unit, "source": offer.source, "condition": offer.condition,
                }  # fmt: skip
        document.append(
            {
                "engine": adapter.kind,
                "title": adapter.title,
                "usual_ports": list(adapter.usual_ports),
                "start_hint": adapter.start_hint,
                "quantities": quantities,
            }
        )
    return document


def offers_markdown(adapters: Sequence[Adapter]) -> str:
    """Two tables (ports and commands; quantities by engine) and the conditions and reasons they refer to."""
    lines = ["| engine | usual port | start it with |", "| --- | --- | --- |"]
    for adapter in adapters:
        ports = ", ".join(map(str, adapter.usual_ports))
        lines.append(f"| {adapter.title} | {ports} | `{adapter.start_hint}` |")
    lines += ["", "What each engine offers; the numbers are explained below the table.", ""]
    lines.append("| quantity | " + " | ".join(adapter.title for adapter in adapters) + " |")
    lines.append("| --- |" + " --- |" * len(adapters))
    notes: dict[str, int] = {}
    for quantity in QUANTITIES:
        cells = [_cell(adapter, quantity.name, notes) for adapter in adapters]
        lines.append(f"| {quantity.title} ({quantity.unit}) | " + " | ".join(cells) + " |")
    lines.append("")
    names = tuple(adapter.title for adapter in adapters)
    for text, number in notes.items():
        lines.append(f"{number}. {text if text.startswith(names) else text[:1].upper() + text[1:]}")
    return "\n".join(lines) + "\n"


def _cell(adapter: Adapter, quantity: str, notes: dict[str, int]) -> str:
    offer = adapter.offers[quantity]
    word, note = ("no", offer.reason) if isinstance(offer, Absence) else ("yes", offer.condition)
    if note is None:
        return word
    return f"{word} [{notes.setdefault(note.rstrip('.') + '.', len(notes) + 1)}]"
