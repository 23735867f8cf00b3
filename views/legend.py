"""What the lines and areas of a stack of charts are, above it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from views import marks, palette
from views.palette import Series


def html(
    engines: Sequence[Series], devices: Sequence[str], *, memory: bool = True, others: Sequence[Series] = ()
) -> str:
    """
    Engines by colour and dash, with `memory` the parts that belong to none; `devices` are entries as HTML.

    `others` are engines that were not chosen and have areas all the same: a stack of memory is not whole without them.
    """
    entries = [_engine(series) for series in engines]
    if others:
        entries += ["<span>in memory also:</span>", *map(_engine, others)]
    if memory:
        for key, name in (("other", "other processes"), ("driver", "driver and unattributed"))[: 2 if devices else 1]:
            box = f'<i class="er-box" style="opacity:{marks.REST_OPACITY[key]}"></i>'
            entries.append(f"<span>{box}{name}</span>")
        entries.append(f"<span>{palette.limit_swatch()}installed memory</span>")
    entries += [f"<span>{device}</span>" for device in devices]
    return f'<div class="er-legend">{"".join(entries)}</div>'


def _engine(series: Series) -> str:
    return f"<span>{palette.swatch(series)}{escape(series.label)}</span>"
