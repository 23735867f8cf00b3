"""
What an engine's memory is made of, on its card: a small stacked bar and a sentence, a place (GPU, host) at a time.

Every figure of the sentence tells its source on hover: the engine's own, or derived and by which rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from views import formatting
from views.tips import tip

Row = Mapping[str, Any]
POOLED = frozenset({"vllm", "sglang"})  # these reserve one pool of blocks for all requests at their start
# part -> how it is drawn: (opacity of the engine's colour, None for grey)
_FILLS: Mapping[str, float | None] = {
    "weights": 1.0, "models": 1.0, "kv_in_use": 0.75, "kv_reserved": 0.4, "graphs": 0.2, "rest": None,
}  # fmt: skip
PLACES = {"device": "GPU", "host": "host"}


def bars(parts: Sequence[Row], kind: str) -> str:
    """
    The bars and sentences of one engine from its rows of the query `memory_parts`, as HTML.

    Empty where no part is known; `why_not` then says why.
    """
    return "".join(
        _bar({str(row["part"]): row for row in parts if row["place"] == place}, place, kind)
        for place in ("device", "host", None)
    )


def why_not(parts: Sequence[Row]) -> str | None:
    """Why nothing is known of what the memory is made of; None where something is, or nothing was asked yet."""
    asked = [row for row in parts if row["part"] in ("weights", "kv_reserved", "graphs", "models")]
    if not asked or any(row["memory_bytes"] is not None for row in asked):
        return None
    return str(asked[0]["source"])


def _bar(found: Mapping[str, Row], place: str | None, kind: str) -> str:
    sizes = {part: row["memory_bytes"] for part, row in found.items() if row["memory_bytes"] is not None}
    told = [part for part in ("kv_reserved", "weights", "models", "graphs") if part in sizes]
    if not told:
        return ""
    words = [_words(part, found, kind) for part in told]
    if "rest" in sizes:
        words.append(_words("rest", found, kind))
    missing = [
        tip(f"{_name(part, kind)} not known", str(found[part]["source"]))
        for part in ("kv_reserved", "weights")
        if part in found and part not in sizes
    ]
    listed = ", ".join([*words, *missing])
    if "held" in sizes:
        text = f"holds {formatting.size(sizes['held'])} on the {PLACES[str(place)]}, of it {listed}"
    else:
        text = listed
    return f'<div class="er-parts">{_segments(sizes)}<span>{text}</span></div>'


def _words(part: str, found: Mapping[str, Row], kind: str) -> str:
    row = found[part]
    how = "derived: " if row["derived"] else "the engine's own figure: "
    shown = tip(f"{formatting.size(row['memory_bytes'])} {_name(part, kind)}", f"{how}{row['source']}")
    used = found.get("kv_in_use")
    if part != "kv_reserved" or used is None or not row["memory_bytes"]:
        return shown
    share = f"{percent(used['memory_bytes'] / row['memory_bytes'])} of the {_name(part, kind).split()[-1]} in use"
    return f"{shown}, " + tip(share, f"{formatting.size(used['memory_bytes'])}; derived: {used['source']}")


def _name(part: str, kind: str) -> str:
    if part == "kv_reserved":
        return "KV pool" if kind in POOLED else "KV cache"
    return {"models": "models with their cache", "rest": "everything else"}.get(part, part)


def percent(share: float) -> str:
    """A share 0..1 in percent, with one decimal below ten; a little use never reads as none."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.0995 else formatting.fraction(share)


def _segments(sizes: Mapping[str, int]) -> str:
    """The bar: its whole width is what is held, or the sum of the parts where they are more or that is not known."""
    pieces = {part: float(sizes[part]) for part in _FILLS if part in sizes}
    if "kv_reserved" in pieces:
        pieces["kv_in_use"] = min(pieces.get("kv_in_use", 0.0), pieces["kv_reserved"])
        pieces["kv_reserved"] -= pieces["kv_in_use"]
    whole = max(float(sizes.get("held", 0)), sum(pieces.values()), 1.0)
    drawn = "".join(
        f'<i style="width:{size * 100 / whole:.2f}%;'
        + ("background:#7d8794;opacity:.55" if _FILLS[part] is None else f"opacity:{_FILLS[part]:g}")
        + '"></i>'
        for part, size in pieces.items()
        if size > 0
    )
    return f'<span class="er-stack" aria-hidden="true">{drawn}</span>'
