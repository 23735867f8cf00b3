"""
What differs between two or more configurations, and which differences make a comparison of figures unfair.

The first configuration is the baseline. A difference is *unfair* where it moves the figures by itself, so that they
would be read as the merit of an engine: another model, fewer bits, another device, a cache on one side only. It is
named, not forbidden: to compare two quantisations is a fair question, to call it a comparison of engines is not
(loadtest practice: kubernetes-sigs/inference-perf, docs/comparability.md).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from comparison.arguments import listed, only_there, value_of
from comparison.formats import base_model, format_in, weight_bits

State = Literal["same", "differs", "unfair", "not known"]
KINDS = {"vllm": "vLLM", "llama.cpp": "llama.cpp", "sglang": "SGLang", "tgi": "TGI", "ollama": "Ollama"}
NO_DEVICE = "no GPU"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one side ran with. None is "not told"; it differs from nothing."""

    name: str  # what the side is called in sentences
    engine: str | None = None  # kind of the engine
    version: str | None = None
    model: str | None = None
    weights: str | None = None  # number format of the weights
    context_tokens: int | None = None  # per request
    slots: int | None = None  # requests computed at once
    kv_format: str | None = None
    prefix_cache: str | None = None  # "on" or "off"
    speculative: str | None = None
    parallel: str | None = None  # over how many GPUs, and how
    devices: tuple[str, ...] | None = None  # names; empty: held no memory on any
    driver: str | None = None
    host: str | None = None
    arguments: tuple[str, ...] | None = None  # redacted command line
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing that configurations may differ in: the value of each side, and what the difference means."""

    name: str
    values: tuple[str | None, ...]
    state: State
    text: str | None = None  # of an unfair difference, or what else there is to know: a sentence


def of_epoch(
    name: str, epoch: Mapping[str, Any], devices: Sequence[str] | None = None, driver: str | None = None
) -> Configuration:
    """
    The configuration of one life of an engine: a row of the query `epochs` (or `overview`).

    `devices` are the names of the devices it held memory on; None: not known.
    """
    kind = epoch.get("kind") or epoch.get("engine")
    facts = _json(epoch.get("facts"), {})
    words = _json(epoch.get("arguments"), None)
    arguments = tuple(str(word) for word in words) if isinstance(words, list) else None
    model = epoch.get("model_id") or epoch.get("model_path")
    dtype = facts.get("dtype") if facts.get("dtype") != "auto" else None
    return Configuration(
        name=name,
        engine=kind,
        version=epoch.get("version"),
        model=model,
        weights=epoch.get("quantization") or format_in(model) or format_in(epoch.get("model_path")) or dtype,
        context_tokens=epoch.get("max_context_tokens"),
        slots=epoch.get("slots"),
        kv_format=_kv_format(kind, facts, arguments),
        prefix_cache=_prefix_cache(kind, facts, arguments),
        speculative=_speculative(facts, arguments),
        parallel=_parallel(facts),
        devices=tuple(devices) if devices is not None else None,
        driver=driver,
        host=epoch.get("host"),
        arguments=arguments,
        facts=facts,
    )


def of_stage(name: str, stage: Mapping[str, Any]) -> Configuration:
    """The configuration of a load-test stage (a row of `loadtest_stages`) that no epoch is known of."""
    model = stage.get("model_id")
    return Configuration(
        name, stage.get("engine"), stage.get("engine_version"), model, format_in(model), host=stage.get("host")
    )


def compare(sides: Sequence[Configuration], concurrency: int | None = None) -> tuple[Aspect, ...]:
    """
    All aspects of the sides, the first being the baseline; `concurrency`: most requests that were sent at once.

    A value that one side does not tell is "not known", never "same".
    """
    engines = [KINDS.get(side.engine or "", side.engine) for side in sides]
    aspects = [
        _aspect("engine", engines),
        _aspect("version", [side.version for side in sides]),
        _model(sides),
        _bits(
            "weights", sides, [side.weights for side in sides],
            "Decoding reads the weights once for each token, so fewer bits are faster by themselves, and the answers "
            "are others: these figures compare quantisations as well.",
        ),
        _aspect("context per request", [_tokens(side.context_tokens) for side in sides]),
        _slots(sides, concurrency),
        _bits(
            "KV cache type", sides, [side.kv_format for side in sides],
            "A smaller type holds more tokens in the same memory, and may be slower or faster to read.",
        ),
        _one_sided("prefix cache", sides, [side.prefix_cache for side in sides],
                   "Where prompts repeat, the side with the cache skips their prefill: its TTFT and prompt rate are "
                   "not those of the engine alone."),
        _one_sided("speculative decoding", sides, [side.speculative for side in sides],
                   "Its gain depends on the text and the load: it holds for this workload only."),
        _devices(sides),
        _aspect("driver", [side.driver for side in sides]),
        _aspect("split over devices", [side.parallel for side in sides]),
        _aspect("host", [side.host for side in sides]),
        _arguments(sides),
    ]  # fmt: skip
    return tuple(aspects)


def unfair(aspects: Sequence[Aspect]) -> list[Aspect]:
    """The aspects whose differences move the figures by themselves."""
    return [aspect for aspect in aspects if aspect.state == "unfair"]


def differing(aspects: Sequence[Aspect]) -> list[Aspect]:
    """The aspects that differ or are not known on one side, the unfair ones first."""
    order: dict[State, int] = {"unfair": 0, "differs": 1, "not known": 2}
    told = [aspect for aspect in aspects if aspect.state != "same" and any(aspect.values)]
    return sorted(told, key=lambda aspect: order[aspect.state])


def _aspect(name: str, values: Sequence[str | None], text: str | None = None) -> Aspect:
    return Aspect(name, tuple(values), _state(values), text)


def _state(values: Sequence[object]) -> State:
    known = {value for value in values if value is not None}
    if len(known) > 1:
        return "differs"
    return "same" if None not in values else "not known"


def _unfair(aspect: Aspect, sides: Sequence[Configuration], why: str) -> Aspect:
    told = "; ".join(f"{value} in {side.name}" for side, value in zip(sides, aspect.values, strict=True) if value)
    return Aspect(aspect.name, aspect.values, "unfair", f"{aspect.name[0].upper()}{aspect.name[1:]}: {told}. {why}")


def _model(sides: Sequence[Configuration]) -> Aspect:
    aspect = _aspect("model", [side.model for side in sides])
    bases = [base_model(side.model) for side in sides]
    if _state(bases) == "differs":
        return _unfair(aspect, sides, "Speed and memory follow the model: nothing here says which engine is better.")
    if _state(bases) == "same" and aspect.state == "differs":
        return Aspect(aspect.name, aspect.values, "differs", "The same name without owner, file ending and format.")
    return aspect


def _bits(name: str, sides: Sequence[Configuration], values: Sequence[str | None], why: str) -> Aspect:
    aspect = _aspect(name, values)
    if _state([_all_bits(value) for value in values]) == "differs":
        return _unfair(aspect, sides, why)
    return aspect


def _all_bits(value: str | None) -> tuple[int, ...] | None:
    """The bits of each format in a text such as "K q8_0, V f16"; one that stands alone is for both."""
    bits = [weight_bits(part) for part in (value or "").split(", ")]
    known = tuple(bit for bit in bits if bit is not None)
    return (known * 2)[:2] if len(known) == len(bits) else None


def _slots(sides: Sequence[Configuration], concurrency: int | None) -> Aspect:
    aspect = _aspect("requests at once", [str(side.slots) if side.slots else None for side in sides])
    few = [side for side in sides if side.slots and concurrency and side.slots < concurrency]
    if few and len(few) < len(sides):
        names = " and ".join(side.name for side in few)
        return _unfair(aspect, sides, f"With {concurrency} requests in flight, {names} lets some wait in its queue.")
    return aspect


def _one_sided(name: str, sides: Sequence[Configuration], values: Sequence[str | None], why: str) -> Aspect:
    aspect = _aspect(name, values)
    return _unfair(aspect, sides, why) if aspect.state == "differs" else aspect


def _devices(sides: Sequence[Configuration]) -> Aspect:
    aspect = _aspect("devices", [_counted(side.devices) for side in sides])
    if aspect.state != "differs":
        return aspect
    return _unfair(aspect, sides, "Speed, power and memory follow the device.")


def _counted(devices: tuple[str, ...] | None) -> str | None:
    if devices is None:
        return None
    parts = [f"{count} x {name}" if count > 1 else name for name, count in sorted(Counter(devices).items())]
    return ", ".join(parts) or NO_DEVICE


def _arguments(sides: Sequence[Configuration]) -> Aspect:
    """Of engines of one kind only what the others don't have; else whole command lines have nothing in common."""
    told = [side.arguments for side in sides]
    known = [listed(words) for words in told if words is not None]
    if len({side.engine for side in sides}) > 1 or len(known) < 2:
        texts = [" ".join(listed(words)) or "none but the model" if words is not None else None for words in told]
    else:
        texts = [only_there(words, known) or "none of its own" if words is not None else None for words in told]
    same = len(known) == len(told) and all(words == known[0] for words in known)
    aspect = _aspect("arguments", texts)
    return Aspect(aspect.name, aspect.values, "same" if same else aspect.state)


def _kv_format(kind: str | None, facts: Mapping[str, Any], arguments: tuple[str, ...] | None) -> str | None:
    if kind == "llama.cpp":
        if arguments is None:
            return None
        types = [str(facts.get(name) or "f16") for name in ("cache_type_k", "cache_type_v")]  # f16: its default
        return types[0] if types[0] == types[1] else f"K {types[0]}, V {types[1]}"
    told = facts.get("cache_dtype") or facts.get("kv_cache_dtype")
    if told != "auto":
        return str(told) if told else None
    dtype = facts.get("dtype")
    return str(dtype) if dtype and dtype != "auto" else "auto (the model's bf16 or f16)"


def _prefix_cache(kind: str | None, facts: Mapping[str, Any], arguments: tuple[str, ...] | None) -> str | None:
    match kind:
        case "vllm":
            told = facts.get("enable_prefix_caching")
            return None if told is None else "on" if told else "off"
        case "sglang":
            off = facts.get("disable_radix_cache")
            return None if off is None else "off" if off else "on"
        case "llama.cpp":
            # Of each slot's own last prompt, and on by default (common/arg.cpp).
            return None if arguments is None else "off" if "--no-cache-prompt" in arguments else "on"
        case _:
            return None


def _speculative(facts: Mapping[str, Any], arguments: tuple[str, ...] | None) -> str | None:
    if arguments is None:
        return None
    names = ("--speculative-config", "--speculative-model", "--speculative-algorithm", "--model-draft", "-md",
             "--spec-type")  # fmt: skip
    return "on" if facts.get("draft_model") or value_of(arguments, *names) is not None else "off"


def _parallel(facts: Mapping[str, Any]) -> str | None:
    """How the model is split; only what is not 1 is named."""
    words = {"tensor_parallel_size": "TP", "pipeline_parallel_size": "PP", "data_parallel_size": "DP"}
    parts = [f"{word} {facts[name]}" for name, word in words.items() if facts.get(name) not in (None, 1, "1")]
    if facts.get("gpu_layers") is not None:
        parts.append(f"{facts['gpu_layers']} layers on GPUs")
    return ", ".join(parts) or "not split"


def _tokens(value: int | None) -> str | None:
    return f"{value:,} tokens" if value else None


def _json(text: object, default: Any) -> Any:
    """A JSON text as what it holds; `default` where there is none or it can't be read."""
    if not isinstance(text, str):
        return default if text is None else text
    try:
        return json.loads(text)
    except ValueError:
        return default
