"""
A mixed host: a llama.cpp router with three models, vLLM over two GPUs, SGLang in a container, an old TGI, Ollama.

What each engine offers is taken from its adapter, so that cards and the Sources page look as they do for real ones.
Memory: sizes in GiB of the table below; each GPU also has 0.5 GiB of a desktop and what the driver keeps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from collectors.engines import ADAPTERS
from collectors.engines.base import Offered
from store.model import (
    Device,
    DeviceSample,
    Engine,
    EngineSample,
    EngineState,
    Epoch,
    Event,
    HostSample,
    MemoryPart,
    Offer,
    ProcessMemory,
    QuantityOffer,
    Row,
    SourceHealth,
    SourceState,
)

HOST = "bench-01"
GIB = 2**30
CHAT, CODE, EMBED = "llama.cpp-8080-chat", "llama.cpp-8080-code", "llama.cpp-8080-embed"
ROUTER, VLLM, SGLANG, TGI, OLLAMA = "llama.cpp-8080", "vllm-8000", "sglang-30000", "tgi-3000", "ollama-11434"
USED = (78.1, 77.2)  # GiB of each GPU in use
ASLEEP = "The model sleeps: a request wakes it. Nothing is sampled meanwhile, so that it stays asleep."


@dataclass(frozen=True)
class Told:
    """One engine of the host: how it is called, what it serves, what it holds in GiB and what it is made of."""

    kind: str
    label: str
    version: str
    model: str | None
    url: str
    state: EngineState = EngineState.READY
    detail: str | None = None
    quantization: str | None = None
    context: int | None = None
    rate: float | None = None  # generated tokens per second
    prompt_rate: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_used: float | None = None
    kv_tokens: float | None = None
    on_gpus: tuple[float, float] = (0.0, 0.0)
    resident: float = 1.0
    parts: tuple[tuple[str, float, bool, str], ...] = ()  # part, GiB on GPUs, derived, source


_LLAMA: dict[str, Any] = {"kind": "llama.cpp", "version": "b11434", "url": "http://127.0.0.1:8080"}
ENGINES: dict[str, Told] = {
    ROUTER: Told(**_LLAMA, label="llama.cpp router", model=None, resident=0.1,
                 detail="Router: chat loaded, code loaded, embed sleeping, 2 more not loaded."),
    CHAT: Told(**_LLAMA, label="llama.cpp · gemma-3-12b-it-Q4_K_M", model="gemma-3-12b-it-Q4_K_M",
               quantization="Q4_K_M", context=16384, rate=61.0, prompt_rate=240.0, running=2.0, waiting=0.0,
               kv_used=0.44, kv_tokens=32768.0, on_gpus=(9.9, 0.0), resident=1.3,
               parts=(("weights", 6.8, False, "/v1/models meta.size"),
                      ("kv_reserved", 2.2, True, "32,768 cells x bytes a cell, computed from the model's file"))),
    CODE: Told(**_LLAMA, label="llama.cpp · Qwen3-Coder-30B-A3B-Q4_K_M", model="Qwen3-Coder-30B-A3B-Instruct-Q4_K_M",
               quantization="Q4_K_M", context=32768, rate=0.0, prompt_rate=0.0, running=0.0, waiting=0.0, kv_used=0.0,
               kv_tokens=32768.0, on_gpus=(0.0, 21.3), resident=1.4,
               parts=(("weights", 17.3, False, "/v1/models meta.size"),
                      ("kv_reserved", 3.0, True, "32,768 cells x bytes a cell, computed from the model's file"))),
    EMBED: Told(**_LLAMA, label="llama.cpp · nomic-embed-text-v1.5", model="nomic-embed-text-v1.5",
                state=EngineState.SLEEPING, detail=ASLEEP, context=2048, resident=0.3),
    VLLM: Told("vllm", "production chat", "0.33.0", "Qwen/Qwen3-32B", "http://127.0.0.1:8000", quantization="FP8",
               context=32768, rate=1450.0, prompt_rate=5200.0, running=38.0, waiting=4.0, kv_used=0.31,
               kv_tokens=101_000.0, on_gpus=(40.1, 40.1), resident=9.2,
               parts=(("weights", 31.4, True, "computed from the weights of Qwen/Qwen3-32B-FP8"),
                      ("kv_reserved", 24.7, True, "6,312 blocks x page bytes from Qwen/Qwen3-32B-FP8"))),
    SGLANG: Told("sglang", "SGLang · Llama-3.1-8B-Instruct", "0.5.23", "meta-llama/Llama-3.1-8B-Instruct",
                 "http://127.0.0.1:30000", context=131072, rate=310.0, prompt_rate=900.0, running=6.0, waiting=0.0,
                 kv_used=0.031, kv_tokens=58_000.0, on_gpus=(26.4, 0.0), resident=4.4,
                 parts=(("weights", 15.0, False, "sglang:weight_memory_usage_gb"),
                        ("kv_reserved", 7.1, False, "sglang:kv_cache_memory_usage_gb"),
                        ("graphs", 1.6, False, "sglang:graph_memory_usage_gb"))),
    TGI: Told("tgi", "TGI · Mistral-7B-Instruct-v0.3", "2.0.1", "mistralai/Mistral-7B-Instruct-v0.3",
              "http://127.0.0.1:3000", context=8192, rate=74.0, prompt_rate=180.0, running=3.0, waiting=1.0,
              on_gpus=(0.0, 14.9), resident=3.1),
    OLLAMA: Told("ollama", "Ollama · llama3.2:3b", "0.30.2", "llama3.2:3b", "http://127.0.0.1:11434",
                 quantization="Q4_K_M", context=4096, rate=12.0, prompt_rate=30.0, running=1.0, waiting=0.0,
                 detail="llama3.2:3b stays loaded until 12:41:07 UTC.", resident=4.0,
                 parts=(("models", 3.4, False, "/api/ps size - size_vram"),)),
}  # fmt: skip


@dataclass(frozen=True)
class MixedDemo:
    """The host's story that begins at `start`; every rate is steady but for a slow wave of a tenth."""

    start: datetime
    engines: tuple[str, ...] = tuple(ENGINES)
    gpus: int = 2
    states: dict[str, EngineState] = field(default_factory=dict)

    def facts(self) -> list[Row]:
        """What is written once."""
        rows: list[Row] = []
        for place, (engine_id, told) in enumerate(ENGINES.items()):
            ts, epoch = self.start + timedelta(milliseconds=place), _epoch(engine_id)
            pid = 4100 + 10 * place
            found = f"process {pid} listens on {told.url.removeprefix('http://')}"
            rows.append(Engine(HOST, engine_id, told.kind, told.label, told.url, found, ts))
            facts = json.dumps({"role": "router"} if engine_id == ROUTER else {})
            rows.append(
                Epoch(HOST, engine_id, epoch, ts, True, ts, pid, told.version, told.model, told.model,
                      told.quantization, told.context, None, json.dumps([told.kind]), facts)
            )  # fmt: skip
            rows.append(Event(ts, HOST, engine_id, epoch, None, "started", f"{told.label} found"))
            rows += _offers(engine_id, told, ts)
            rows += [
                MemoryPart(ts, HOST, engine_id, epoch, part, "device" if any(told.on_gpus) else "host",
                           int(size * GIB), derived, source)
                for part, size, derived, source in told.parts
            ]  # fmt: skip
            if not told.parts:
                why = f"There are no rules for the memory of {told.kind} yet."
                why = why if told.kind == "tgi" else told.detail or why
                rows.append(MemoryPart(ts, HOST, engine_id, epoch, "weights", None, None, False, why))
        for gpu in range(2):
            name = "NVIDIA H100 80GB HBM3"
            rows.append(Device(HOST, _gpu(gpu), "nvidia", gpu, name, 80 * GIB, "580.95", self.start))
        return rows

    def seconds(self, first: int, last: int) -> Iterator[list[Row]]:
        """The rows of each second from `first` up to, not including, `last`."""
        for second in range(first, last):
            yield self.second(second)

    def second(self, second: int) -> list[Row]:
        """All rows of one second."""
        ts = self.start + timedelta(seconds=second)
        rows: list[Row] = list(_machine(ts, second))
        for engine_id, told in ENGINES.items():
            rows += _memory(engine_id, told, ts)
            if second % 2 == 0:
                rows.append(_sample(engine_id, told, ts, second))
                rows.append(
                    SourceHealth(ts, HOST, f"engine:{engine_id}", "engine", told.state, 0.011, 0.002, 2.0, told.detail,
                                 f"process listens on {told.url.removeprefix('http://')}")
                )  # fmt: skip
        return rows


def _offers(engine_id: str, told: Told, ts: datetime) -> list[Row]:
    (adapter,) = (adapter for adapter in ADAPTERS if adapter.kind == told.kind)
    rows: list[Row] = []
    for quantity, offered in adapter.offers.items():
        values: tuple[str, str | None, str | None, str | None]
        if isinstance(offered, Offered):
            values = (Offer.OFFERED, offered.source, None, None)
        else:
            values = (offered.offer, None, offered.reason, offered.remedy)
        rows.append(QuantityOffer(ts, HOST, engine_id, _epoch(engine_id), quantity, *values))
    return rows


def _sample(engine_id: str, told: Told, ts: datetime, second: int) -> EngineSample:
    known: dict[str, Any] = {"ts": ts, "monotonic_seconds": 1000.0 + second, "host": HOST, "engine_id": engine_id}
    known |= {"epoch_id": _epoch(engine_id), "state": told.state, "detail": told.detail}
    if told.rate is None or told.prompt_rate is None:
        return EngineSample(**known)
    lived = second + 9 * (1 - math.cos(second / 90))  # the integral of 1 + a tenth of a wave
    return EngineSample(
        **known,
        generation_tokens_total=told.rate * lived,
        prompt_tokens_total=told.prompt_rate * lived,
        requests_running=told.running,
        requests_waiting=told.waiting,
        kv_used_fraction=told.kv_used,
        kv_capacity_tokens=told.kv_tokens,
    )


def _memory(engine_id: str, told: Told, ts: datetime) -> Iterator[Row]:
    place = list(ENGINES).index(engine_id)
    epoch, pid = _epoch(engine_id), 4100 + 10 * place
    for gpu, held in enumerate(told.on_gpus):
        if held:
            size = int(held * GIB)
            yield ProcessMemory(ts, HOST, engine_id, epoch, _gpu(gpu), pid + gpu, told.kind, "nvml_process", size)
    size = int(told.resident * GIB)
    yield ProcessMemory(ts, HOST, engine_id, epoch, None, pid, told.kind, "rss", size, 0.8, 3)


def _machine(ts: datetime, second: int) -> Iterator[Row]:
    wave = math.sin(second / 90)
    for gpu, used in enumerate(USED):
        yield DeviceSample(
            ts, HOST, _gpu(gpu), SourceState.OK, None, memory_total_bytes=80 * GIB, memory_used_bytes=int(used * GIB),
            memory_reserved_bytes=int(0.6 * GIB), utilisation_fraction=0.8 + 0.1 * wave, power_watts=560 + 40 * wave,
            power_limit_watts=700.0, temperature_celsius=63.0, sm_clock_hertz=1.755e9, memory_clock_hertz=2.619e9,
        )  # fmt: skip
        yield ProcessMemory(ts, HOST, None, None, _gpu(gpu), 900, "Xorg", "nvml_process", GIB // 2)
    yield HostSample(ts, HOST, 0.31 + 0.05 * wave, 64, 19.0, 256 * GIB, 210 * GIB, 46 * GIB, 0, 0)
    for source_id, kind in (
        ("host", "host"),
        ("device:nvidia", "device"),
        ("discovery", "discovery"),
        ("store", "store"),
    ):
        yield SourceHealth(ts, HOST, source_id, kind, SourceState.OK, 0.004, 0.001, 1.0, None, None)


def _epoch(engine_id: str) -> str:
    return f"{engine_id}@1"


def _gpu(index: int) -> str:
    return f"GPU-{index}0000000-aaaa"
