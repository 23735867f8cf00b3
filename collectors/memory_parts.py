"""
What the memory of an engine is made of, as far as it can be known: the engine's own figures first, derived ones second.

The rules are those of `calculator`: a KV cache is what its planner makes of the engine's own settings and the facts
of its model file, with the number of blocks or cells that the engine itself tells.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from calculator.model import CalculatorError, Device, DevicePlan, MemoryPlan
from calculator.plan import plan
from calculator.vllm_settings import VllmSettings
from collectors.engines.base import Reading
from collectors.prediction import Prediction
from store.model import EngineState, MemoryPart

DEVICE, HOST = "device", "host"
_ASLEEP = "The engine sleeps: its model is not where it is while it serves."
_UNSEEN = "None of the engine's processes can be seen here, so it is not known where its memory lies."
_UNTOLD = "The driver does not tell what the engine's processes hold, so it is not known where its parts lie."


@dataclass(frozen=True, slots=True)
class Part:
    """One part before it becomes a row; see `MemoryPart`."""

    part: str
    place: str | None
    memory_bytes: int | None
    derived: bool
    source: str


class MemoryParts:
    """Turns parts into rows when one of them has changed. `stored`: the rows of the query `memory_parts`."""

    def __init__(self, host: str, stored: Iterable[Mapping[str, Any]] = ()) -> None:
        self._host = host
        self._written: dict[str, frozenset[Part]] = {}
        for row in stored:
            if row["part"] in ("weights", "kv_reserved", "graphs", "models"):
                part = Part(*(row[name] for name in ("part", "place", "memory_bytes", "derived", "source")))
                epoch = str(row["epoch_id"])
                self._written[epoch] = self._written.get(epoch, frozenset()) | {part}

    def rows(self, ts: datetime, engine: Mapping[str, Any], parts: Sequence[Part]) -> list[MemoryPart]:
        """All parts of `engine` (a row of the query `overview`), or nothing when they are what was written last."""
        epoch = str(engine["epoch_id"])
        if not parts or self._written.get(epoch) == frozenset(parts):
            return []
        self._written[epoch] = frozenset(parts)
        return [
            MemoryPart(
                ts=ts,
                host=self._host,
                engine_id=str(engine["engine_id"]),
                epoch_id=epoch,
                part=part.part,
                place=part.place,
                memory_bytes=part.memory_bytes,
                derived=part.derived,
                source=part.source,
            )
            for part in parts
        ]


def parts_of(engine: Mapping[str, Any], prediction: Prediction, told: Mapping[str, Reading]) -> list[Part]:
    """
    The parts of one engine: `engine` a row of the query `overview`, `told` what its newest reading says in `memory`.

    A part that can't be known is there without a figure, and says why. Units: bytes.
    """
    place, why_not = _place(engine)
    if engine["state"] == EngineState.SLEEPING:
        return [Part(part, place, None, False, _ASLEEP) for part in ("weights", "kv_reserved")]
    found = _told_parts(told, place)
    if any(part.part == "models" for part in found):
        return found
    facts: Mapping[str, Any] = json.loads(engine["facts"]) if engine.get("facts") else {}
    made = prediction.plan if place is not None else None
    no_plan = None if made is not None else prediction.reason or "There is no memory plan of this engine."
    reason = why_not or no_plan or "The engine does not tell how large its cache is."
    names = {part.part for part in found}
    if "weights" not in names:
        found += _weights(facts, made, prediction, place) or [Part("weights", place, None, False, reason)]
    if "kv_reserved" not in names:
        found += _cache(engine, facts, made, prediction, place) or [Part("kv_reserved", place, None, False, reason)]
    return found


def _place(engine: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Where the engine keeps its model, by what its processes hold; and why that is not known."""
    if engine.get("device_memory_bytes") is not None:
        return DEVICE, None
    if engine.get("device_memory_method") is not None:
        return None, _UNTOLD
    return (HOST, None) if engine.get("process_count") is not None else (None, _UNSEEN)


def _told_parts(told: Mapping[str, Reading], place: str | None) -> list[Part]:
    """The engine's own figures. Ollama's are the sum of its models, and the share of it that lies on GPUs."""
    values = {name: (round(r.value), r.source) for name, r in told.items() if r.value is not None}
    found = [
        Part(name, place, *values[name][:1], False, values[name][1])
        for name in ("weights", "kv_reserved", "graphs")
        if name in values
    ]
    if "models" in values:
        size, source = values["models"]
        on_gpu, gpu_source = values.get("models_on_gpu", (None, ""))
        if on_gpu is None:
            found.append(Part("models", place, size, False, source))
        else:
            if on_gpu:
                found.append(Part("models", DEVICE, on_gpu, False, gpu_source))
            if size > on_gpu:
                found.append(Part("models", HOST, size - on_gpu, False, f"{source} - {gpu_source.split()[-1]}"))
    return found


def _weights(
    facts: Mapping[str, Any], made: MemoryPlan | None, prediction: Prediction, place: str | None
) -> list[Part]:
    told = facts.get("weights_bytes")
    split = made is not None and bool(made.devices) and made.host.weights_bytes > 0
    if isinstance(told, int) and not split:
        return [Part("weights", place, told, False, "/v1/models meta.size")]
    if made is None:
        return []
    rule = f"computed from the weights of {prediction.model_file}"
    return _placed("weights", made, lambda where: where.weights_bytes, rule)


def _cache(
    engine: Mapping[str, Any],
    facts: Mapping[str, Any],
    made: MemoryPlan | None,
    prediction: Prediction,
    place: str | None,
) -> list[Part]:
    """The whole KV cache. vLLM's size option holds for each worker; its blocks have one size in all of them."""
    settings = prediction.settings
    if isinstance(settings, VllmSettings):
        ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size
        told, blocks = facts.get("kv_cache_memory_bytes"), facts.get("num_gpu_blocks")
        if isinstance(told, int):
            source = "vllm:cache_config_info kv_cache_memory_bytes" + (f" x {ranks} workers" if ranks > 1 else "")
            return [Part("kv_reserved", place, told * ranks, False, source)]
        if made is None or not isinstance(blocks, int):
            return []
        each = blocks // max(1, int(facts.get("engines", 1)))
        counted = _with_blocks(made, prediction, settings, each)
        rule = f"{each:,} blocks (vllm:cache_config_info num_gpu_blocks) x page bytes from {prediction.model_file}"
        return _placed("kv_reserved", counted, lambda where: where.kv_bytes, rule) if counted else []
    if made is None or engine.get("kv_capacity_tokens") is None:
        return []
    rule = f"{made.context_cells:,} cells x bytes a cell, " if made.context_cells else ""
    rule += f"computed from {prediction.model_file}"
    if prediction.reason:  # what the plan had to assume
        rule += f". {prediction.reason}"
    return _placed("kv_reserved", made, lambda where: where.kv_bytes + where.state_bytes, rule)


def _with_blocks(made: MemoryPlan, prediction: Prediction, settings: VllmSettings, blocks: int) -> MemoryPlan | None:
    """The plan with the number of blocks that the engine tells; None where the rules refuse it."""
    if prediction.model is None:
        return None
    devices = [Device(where.name, where.capacity_bytes or 0) for where in made.devices]
    try:
        return plan(prediction.model, replace(settings, num_gpu_blocks_override=blocks), devices, remedies=False)
    except CalculatorError:  # the rules know no such cache: then there is no figure, and the plan's reason stands
        return None


def _placed(part: str, made: MemoryPlan, size: Callable[[DevicePlan], int], rule: str) -> list[Part]:
    """One part by place; a place that holds none of it is left out."""
    places: tuple[tuple[str, Sequence[DevicePlan]], ...] = ((DEVICE, made.devices), (HOST, (made.host,)))
    sums = [(place, sum(size(where) for where in plans)) for place, plans in places]
    return [Part(part, place, total, True, rule) for place, total in sums if total > 0]
