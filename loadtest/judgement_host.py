"""Whether others used the host's cores or the devices of the measured engine meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import humanize

# Of all cores. Repeats on an idle host scatter by a few per cent, in which a tenth of its cores gone would show.
# No share fails a stage: nothing tells whether the engine would have used what others took.
HOST_BUSY_WARNING = 0.10
# From here on no core was free for the engine to take.
HOST_FULL = 0.95
# Of the stage's span, which samples must cover before a mean over them is one of the stage.
LEAST_COVERED = 0.5
# A desktop holds some hundred MB; what holds more may be a model, which is there to compute.
DEVICE_SHARED_WARNING_BYTES = 2**30


def host_busy(
    used: Mapping[str, Any], client_cores: float, span_seconds: float, label: str
) -> Iterator[tuple[str, str, str]]:
    """
    Code, severity and text from a row of the query `stage_host` and the cores that the load generator used.

    Nothing where samples cover less than half of `span_seconds`.
    """
    if used["covered_seconds"] < LEAST_COVERED * span_seconds:
        return
    count, busy, engine = used["cpu_count"], used["busy_cores"], used["engine_cores"]
    others = max(0.0, busy - engine - client_cores)
    text = f"other processes used {others:.1f} of the host's {count} cores on average"
    if others <= HOST_BUSY_WARNING * count:
        yield "host_busy", "ok", f"{text[0].upper()}{text[1:]}."
        return
    parts = f"{label} {engine:.1f}, the load generator {client_cores:.1f}"
    free = "No core was free: " if busy >= HOST_FULL * count else ""
    text = f"{free}{text}" if free else f"{text[0].upper()}{text[1:]}"
    yield "host_busy", "warning", f"{text} ({parts}). End them and measure again."


def device_shared(others_memory_bytes: float | None, device: str, label: str) -> Iterator[tuple[str, str, str]]:
    """Code, severity and text from what others held on one device at most; nothing where that is not known."""
    if others_memory_bytes is None:
        return
    if not others_memory_bytes:
        yield "device_shared", "ok", f"No other process held memory on {device}."
        return
    held = humanize.naturalsize(others_memory_bytes, binary=True)
    severity = "warning" if others_memory_bytes >= DEVICE_SHARED_WARNING_BYTES else "note"
    text = f"Other processes held up to {held} on {device} while {label} was measured"
    more = "; whether they also computed on it is not known." if severity == "warning" else "."
    yield "device_shared", severity, text + more
