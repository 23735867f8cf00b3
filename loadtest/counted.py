"""
What an engine counted between two readings of its own counters. Pure; `loadtest.counters` reads them.

A difference is told only within one life of the engine's process, and with how far it may be off where the engine
prints its numbers rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SAME_START_SECONDS = 2.0  # two readings of one process's start time agree to within this
_SIX_DIGITS = "(6 significant digits)"  # how the llama.cpp adapter marks a rounded counter


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """One engine at one moment. `values` are raw counters by the names of `store.model.QUANTITIES`."""

    kind: str | None = None  # "vllm"; None: no known engine answers there
    version: str | None = None
    model_id: str | None = None
    arguments: tuple[str, ...] = ()  # redacted; empty where the process can't be seen
    pid: int | None = None
    process_start: float | None = None  # Unix time
    restart_marker: str | None = None  # constant for one life of the process
    state: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    running: float | None = None  # requests
    waiting: float | None = None  # requests
    settled: bool = False  # idle, and the counters had stopped moving
    absent: str | None = None  # why there are no counters, in a sentence


@dataclass(frozen=True, slots=True)
class Difference:
    """What the engine counted between two readings of one life of its process; else why that can't be told."""

    counted: Mapping[str, float]  # by the names of QUANTITIES; empty where it can't be told
    uncertain: Mapping[str, float]  # how far a count may be off because the engine prints it rounded
    settled: bool
    restarted: str | None = None  # a sentence: another process answers now
    changed: str | None = None  # a sentence: another model, version or other arguments
    absent: str | None = None  # a sentence: why nothing was counted


def difference(before: EngineCounters, after: EngineCounters) -> Difference:
    """What was counted between two readings, where both are of one process."""
    settled = before.settled and after.settled
    absent = before.absent or after.absent
    if before.kind is not None and after.kind is None:
        gone = f"{before.kind} did not answer any more after the stage. {after.absent or ''}".strip()
        return Difference({}, {}, settled=False, restarted=gone, absent=absent)
    changed = _changed(before, after)
    if (restarted := _restarted(before, after)) is not None:
        return Difference({}, {}, settled, restarted=restarted, changed=changed, absent=absent)
    counted = {name: after.values[name] - before.values[name] for name in before.values if name in after.values}
    uncertain = {
        name: _rounding(before.values[name], before.sources[name]) + _rounding(after.values[name], after.sources[name])
        for name in counted
    }
    return Difference(counted, uncertain, settled, changed=changed, absent=absent)


def document(before: EngineCounters, after: EngineCounters) -> dict[str, Any]:
    """Both readings and their difference: JSON for `LoadtestStage.counters`."""
    told = difference(before, after)
    return {
        "before": dict(before.values),
        "after": dict(after.values),
        "difference": dict(told.counted),
        "uncertain": {name: value for name, value in told.uncertain.items() if value},
        "sources": dict(after.sources),
        "settled": told.settled,
        "running_before": before.running,
        "restarted": told.restarted,
        "changed": told.changed,
        "absent": told.absent,
    }


def _restarted(before: EngineCounters, after: EngineCounters) -> str | None:
    if before.pid is not None and after.pid is not None and before.pid != after.pid:
        return f"Process {before.pid} served before the stage, process {after.pid} after it."
    starts = (before.process_start, after.process_start)
    if starts[0] is not None and starts[1] is not None and abs(starts[0] - starts[1]) > SAME_START_SECONDS:
        return "The process that serves has begun anew during the stage."
    markers = (before.restart_marker, after.restart_marker)
    if None not in markers and markers[0] != markers[1]:
        return "The engine's own start marker changed during the stage."
    back = [name for name in before.values if after.values.get(name, math.inf) < before.values[name]]
    # A rounded counter never falls either: rounding keeps the order of two numbers.
    back = [name for name in back if name != "generation_live_tokens_total"]  # a product of two rounded numbers may
    return f"The engine's counter {back[0]} went back during the stage." if back else None


def _changed(before: EngineCounters, after: EngineCounters) -> str | None:
    for name, one, other in (
        ("engine", before.kind, after.kind),
        ("version", before.version, after.version),
        ("model", before.model_id, after.model_id),
    ):
        if one is not None and other is not None and one != other:
            return f"The {name} was {one} before the stage and {other} after it."
    if before.arguments and after.arguments and before.arguments != after.arguments:
        return "The engine runs with other arguments than before the stage."
    return None


def _rounding(value: float, source: str) -> float:
    """By how much a counter that is printed with 6 significant digits may be off (engines: llama.cpp)."""
    if not source.endswith(_SIX_DIGITS) or value < 1e6:
        return 0.0
    return float(10 ** (math.floor(math.log10(value)) - 5)) / 2
