"""
The memory plan of an engine that runs here, from what it told about itself and from its own model file.

Pure but for reading the model's header and the working directory of the engine's process; it asks no engine
and no network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from calculator.llamacpp_settings import LlamaCppSettings
from calculator.model import CalculatorError, Device, MemoryPlan, Model
from calculator.plan import Settings, load_model, plan, settings_of, with_files
from calculator.vllm_settings import VllmSettings

GIB = 2**30
PLANNED = ("vllm", "llama.cpp")
_ENTRY = ("serve", "server", "vllm.entrypoints.openai.api_server")
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"


@dataclass(frozen=True, slots=True)
class Prediction:
    """A plan, or why there is none. `model_file` is what the facts were read from, where it is known."""

    plan: MemoryPlan | None
    settings: Settings | None = None
    model: Model | None = None
    model_file: str | None = None
    reason: str | None = None  # why there is no plan, or what it had to assume


def predict(
    engine: Mapping[str, Any],
    devices: Sequence[Device],
    host: Device | None,
    environment: Mapping[str, str],
) -> Prediction:
    """
    The plan of one engine. `engine`: its row of the query `overview`; `devices`: those it holds memory on.

    Never raises for what an engine or its files say: the reason tells it.
    """
    kind = str(engine["kind"])
    if kind not in PLANNED:
        return Prediction(None, reason=f"There are no rules for the memory of {kind} yet.")
    reference: str | None = None
    try:
        words = _words(engine)
        reference = _reference(engine, words)
        if reference is None:
            return Prediction(None, reason="The engine does not tell which model file it loaded.")
        model = load_model(reference)
        settings, assumed = _settings(kind, engine, words, devices, environment)
        settings, draft = with_files(settings)
        made = plan(model, settings, devices, host, draft=draft)
    except (CalculatorError, OSError) as error:
        return Prediction(None, model_file=reference, reason=_sentence(error))
    return Prediction(made, settings, model, _file_of(model, reference), assumed)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text.endswith(".") else f"{text}."


def _file_of(model: Model, reference: str) -> str:
    """The path that was read, or the reference where the facts are from the catalogue or the cache."""
    return str(Path(reference).resolve()) if Path(reference).exists() else model.source


def _words(engine: Mapping[str, Any]) -> list[str] | None:
    """The engine's own options, without the program's words before them; None where they can't be seen."""
    if not engine.get("arguments"):
        return None
    words = [str(word) for word in json.loads(engine["arguments"])]
    if engine["kind"] == "llama.cpp":
        name = Path(words[0]).name if words else ""
        if name.startswith("llama-server"):
            return words[1:]
        return words[2:] if name in ("llama", "llama.exe") and words[1:2] in (["serve"], ["server"]) else None
    for place, word in enumerate(words[:9]):
        if word in _ENTRY or word.endswith("api_server.py"):
            return words[place + 1 :]
    return None


def _reference(engine: Mapping[str, Any], words: Sequence[str] | None) -> str | None:
    """The model as a path that exists here, else as the engine names it."""
    named = engine.get("model_path") or engine.get("model_id")
    if engine["kind"] == "vllm" and words and not words[0].startswith("-"):
        named = engine.get("model_path") or words[0]
    if not named:
        return None
    path = Path(str(named)).expanduser()
    if path.is_absolute() or engine.get("pid") is None:
        return str(path)
    beside = _working_directory(int(engine["pid"])) / path
    return str(beside) if beside.exists() else str(named)


def _working_directory(pid: int) -> Path:
    try:
        return Path(psutil.Process(pid).cwd())
    except (psutil.Error, OSError):
        return Path("/nonexistent")


def _settings(
    kind: str,
    engine: Mapping[str, Any],
    words: Sequence[str] | None,
    devices: Sequence[Device],
    environment: Mapping[str, str],
) -> tuple[Settings, str | None]:
    """The settings of the running engine, and what had to be assumed."""
    settings = settings_of(kind, words or (), engine.get("version"), devices)
    assumed = None if words is not None else "The engine's command line can't be seen: defaults are assumed."
    if isinstance(settings, LlamaCppSettings):
        settings = _as_served(settings, engine, words)
        if not devices:
            settings = replace(settings, gpu_layers=0)
    elif isinstance(settings, VllmSettings):
        facts = json.loads(engine["facts"]) if engine.get("facts") else {}
        settings = _as_told(settings, engine, facts, environment)
    return settings, assumed


def _as_served(settings: LlamaCppSettings, engine: Mapping[str, Any], words: Sequence[str] | None) -> LlamaCppSettings:
    """
    With the context and slots that the server has in effect: `--fit` lowers a context that was not set.

    `/props` tells the length of one slot; on one shared cache that is the whole of it, else each slot has its own.
    """
    slots, each = engine.get("slots"), engine.get("max_context_tokens")
    if not slots or not each:
        return settings
    capacity = engine.get("kv_capacity_tokens")
    unified = settings.unified if words is not None else bool(capacity and capacity == each and slots > 1)
    context = int(each) if unified else int(each) * int(slots)
    return replace(settings, context=context, parallel=int(slots), kv_unified=unified)


def _as_told(
    settings: VllmSettings, engine: Mapping[str, Any], facts: Mapping[str, Any], environment: Mapping[str, str]
) -> VllmSettings:
    """With what vLLM tells in `vllm:cache_config_info` and `/v1/models` where the command line says nothing."""
    changes: dict[str, Any] = {}
    if settings.max_model_len is None and engine.get("max_context_tokens"):
        changes["max_model_len"] = int(engine["max_context_tokens"])
    if settings.gpu_memory_utilization is None and isinstance(facts.get("gpu_memory_utilization"), float):
        changes["gpu_memory_utilization"] = facts["gpu_memory_utilization"]
    if settings.block_size is None and isinstance(facts.get("block_size"), int):
        changes["block_size"] = facts["block_size"]
    if settings.enable_prefix_caching is None and isinstance(facts.get("enable_prefix_caching"), bool):
        changes["enable_prefix_caching"] = facts["enable_prefix_caching"]
    if settings.kv_cache_memory_bytes is None:
        if isinstance(facts.get("kv_cache_memory_bytes"), int):
            changes["kv_cache_memory_bytes"] = facts["kv_cache_memory_bytes"]
        elif settings.platform == "cpu" and environment.get(_CPU_SPACE, "").isdigit():
            changes["kv_cache_memory_bytes"] = int(environment[_CPU_SPACE]) * GIB or None
    return replace(settings, **changes)
