"""
Believable rows of a host with two GPUs and four engines, for pages, screenshots and benchmarks.

Everything is a function of time, so that the same moment always gives the same rows, and what a page shows
can be worked out by hand: vLLM generates 600 tokens/s plus a slow wave of 60, llama.cpp 88.
Rows go through the `Sink` protocol; nothing here knows how the store is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from store.model import (
    Device,
    DeviceSample,
    Engine,
    EngineSample,
    EngineState,
    Epoch,
    Event,
    HostSample,
    LatencyBucket,
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
VLLM, LLAMA, SGLANG, SECOND = "vllm-8000", "llama.cpp-8080", "sglang-30000", "vllm-8001"
LABELS = {
    VLLM: "Qwen3-8B on vLLM",
    LLAMA: "Qwen3-8B Q4_K_M on llama.cpp",
    SGLANG: "Qwen3-8B on SGLang",
    SECOND: "Qwen3-32B on vLLM",
}
VLLM_TOKENS, VLLM_WAVE, WAVE_SECONDS, LLAMA_TOKENS = 600.0, 60.0, 90.0, 88.0
LLAMA_REQUEST_TOKENS = 800.0
# Qwen3-8B: 36 layers x 8 KV heads x (128 + 128) = 73,728 elements a token; q8_0 takes 34 bytes for 32.
VLLM_POOL_BYTES, LLAMA_CACHE_BYTES = 218_000 * 73_728 * 2, 32_768 * 73_728 * 34 // 32
PARTS = {
    VLLM: (
        ("weights", 16_381_470_720, True, "computed from the weights of Qwen/Qwen3-8B"),
        ("kv_reserved", VLLM_POOL_BYTES, True, "13,625 blocks x page bytes from Qwen/Qwen3-8B"),
    ),
    LLAMA: (
        ("weights", 5_027_783_488, False, "/v1/models meta.size"),
        ("kv_reserved", LLAMA_CACHE_BYTES, True, "32,768 cells x bytes a cell"),
    ),
}
LLAMA_RESTART_SECONDS, LLAMA_BACK_SECONDS = 120, 132
# The grid of vLLM's time-to-first-token histogram, abridged (tests/fixtures: vllm exposition).
TTFT_BOUNDS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, math.inf)
ITL_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, math.inf)
DETAILS = {
    EngineState.UNREACHABLE: "Nothing accepts connections at http://127.0.0.1:30000 although process 5120 runs. "
    "Look into the engine's own log.",
    EngineState.LOADING: "GET /health answered 503: the model is being loaded. Nothing to do but wait.",
    EngineState.UNAUTHORISED: "GET /metrics answered 401: the server wants an API key. Name the environment variable "
    "that holds it as api_key_env of this target in engine-room.toml.",
    EngineState.BUSY: "No answer within 10 s, four slots were busy. Sampling goes on; nothing to do.",
    EngineState.STOPPED: "Process 5120 ended.",
    EngineState.METRICS_DISABLED: "GET /metrics answered 501. Start llama-server with --metrics.",
}


@dataclass(frozen=True)
class Demo:
    """A host's story that begins at `start`. `states` overrides the state of an engine from the beginning on."""

    start: datetime
    engines: tuple[str, ...] = (VLLM, LLAMA, SGLANG, SECOND)
    gpus: int = 2
    states: dict[str, EngineState] = field(default_factory=dict)

    def facts(self) -> list[Row]:
        """What is written once: engines, their epochs, what they offer, devices and first events."""
        rows: list[Row] = []
        for engine_id in self.engines:
            kind, port = engine_id.rsplit("-", 1)
            found_by = f"process {_pid(engine_id)} listens on 127.0.0.1:{port}"
            url = f"http://127.0.0.1:{port}"
            rows.append(Engine(HOST, engine_id, kind, LABELS[engine_id], url, found_by, self.start))
            rows.append(self._epoch(engine_id, 1, self.start))
            rows.extend(self._offers(engine_id, 1, self.start))
            rows.extend(self._parts(engine_id, 1, self.start))
            text = f"{LABELS[engine_id]} started"
            rows.append(Event(self.start, HOST, engine_id, _epoch_id(engine_id, 1), None, "started", text))
        for gpu in range(self.gpus):
            rows.append(Device(HOST, _gpu(gpu), "nvidia", gpu, "NVIDIA H100 80GB HBM3", 80 * GIB, "580.95", self.start))
        return rows

    def seconds(self, first: int, last: int) -> Iterator[list[Row]]:
        """The rows of each second from `first` up to, not including, `last` (seconds since `start`)."""
        for second in range(first, last):
            yield self.second(second)

    def second(self, second: int) -> list[Row]:
        """All rows of one second of the story."""
        ts = self.start + timedelta(seconds=second)
        rows: list[Row] = [*self._machine(ts, second)]
        for engine_id in self.engines:
            rows.extend(self._memory(engine_id, ts, second))
            if second % 2 == 0:
                rows.append(self._sample(engine_id, ts, second))
                rows.append(self._engine_health(engine_id, ts))
        if second % 10 == 0 and self._state(VLLM, second) == EngineState.READY and VLLM in self.engines:
            rows.extend(_histograms(ts, second))
        if LLAMA in self.engines and second == LLAMA_BACK_SECONDS:
            rows.append(self._epoch(LLAMA, 2, ts))
            rows.extend(self._offers(LLAMA, 2, ts))
            rows.extend(self._parts(LLAMA, 2, ts))
            text = "restarted with 4 slots, was 2"
            rows.append(Event(ts, HOST, LLAMA, _epoch_id(LLAMA, 2), None, "restarted", f"{LABELS[LLAMA]} {text}"))
        return rows

    def _state(self, engine_id: str, second: int) -> EngineState:
        if engine_id in self.states:
            return self.states[engine_id]
        if engine_id == LLAMA and LLAMA_RESTART_SECONDS <= second < LLAMA_BACK_SECONDS:
            return EngineState.STOPPED
        usual = {SGLANG: EngineState.UNREACHABLE, SECOND: EngineState.LOADING}
        return usual.get(engine_id, EngineState.READY)

    def _epoch(self, engine_id: str, number: int, ts: datetime) -> Epoch:
        model = "Qwen/Qwen3-32B" if engine_id == SECOND else "Qwen/Qwen3-8B"
        is_llama = engine_id == LLAMA
        return Epoch(
            host=HOST,
            engine_id=engine_id,
            epoch_id=_epoch_id(engine_id, number),
            started=ts,
            started_is_process_start=True,
            first_seen=ts,
            pid=_pid(engine_id),
            version={LLAMA: "b11434", SGLANG: "0.5.23"}.get(engine_id, "0.33.0"),
            model_id="Qwen3-8B-Q4_K_M" if is_llama else model,
            model_path="/models/Qwen3-8B-Q4_K_M.gguf" if is_llama else model,
            quantization="Q4_K_M" if is_llama else "BF16",
            max_context_tokens=8192 if is_llama else 32768,
            slots=4 if is_llama else None,
            arguments=json.dumps(
                ["llama-server", "-m", "Qwen3-8B-Q4_K_M.gguf", "--metrics"] if is_llama else ["vllm", "serve", model]
            ),
            facts=json.dumps({} if is_llama else {"tensor_parallel_size": 1}),
        )

    def _offers(self, engine_id: str, number: int, ts: datetime) -> list[Row]:
        def offer(quantity: str, source: str) -> QuantityOffer:
            return QuantityOffer(
                ts, HOST, engine_id, _epoch_id(engine_id, number), quantity, Offer.OFFERED, source, None, None
            )

        def absence(quantity: str, reason: str, remedy: str) -> QuantityOffer:
            return QuantityOffer(
                ts, HOST, engine_id, _epoch_id(engine_id, number), quantity, Offer.NOT_OFFERED, None, reason, remedy
            )

        if engine_id == VLLM:
            names = {
                "generation_tokens_total": "vllm:generation_tokens_total",
                "prompt_tokens_total": 'vllm:prompt_tokens_by_source_total{source="local_compute"}',
                "requests_running": "vllm:num_requests_running",
                "requests_waiting": "vllm:num_requests_waiting",
                "kv_used_fraction": "vllm:kv_cache_usage_perc",
                "kv_capacity_tokens": "vllm:cache_config_info",
                "ttft_seconds": "vllm:time_to_first_token_seconds",
                "itl_seconds": "vllm:inter_token_latency_seconds",
            }
            return [offer(quantity, source) for quantity, source in names.items()]
        if engine_id == LLAMA:
            names = {
                "generation_tokens_total": "llamacpp:tokens_predicted_total",
                "generation_live_tokens_total": "llamacpp:n_decode_total x n_busy_slots_per_decode",
                "prompt_tokens_total": "llamacpp:prompt_tokens_total",
                "requests_running": "llamacpp:requests_processing",
                "requests_waiting": "llamacpp:requests_deferred",
                "kv_used_fraction": "/slots n_prompt_tokens / n_ctx (estimated)",
                "kv_capacity_tokens": "/props n_ctx x total_slots",
            }
            remedy = "Run a load test: the client measures it."
            return [offer(quantity, source) for quantity, source in names.items()] + [
                absence("ttft_seconds", "llama.cpp has no histogram of the time to first token.", remedy),
                absence(
                    "itl_seconds",
                    "llama.cpp has no histogram of the inter-token latency; its totals give a mean.",
                    remedy,
                ),
                absence("e2e_seconds", "llama.cpp has no histogram of request durations.", remedy),
            ]
        return []

    def _parts(self, engine_id: str, number: int, ts: datetime) -> list[Row]:
        place = "device" if self.gpus else "host"
        return [
            MemoryPart(ts, HOST, engine_id, _epoch_id(engine_id, number), part, place, size, derived, source)
            for part, size, derived, source in PARTS.get(engine_id, ())
        ]

    def _sample(self, engine_id: str, ts: datetime, second: int) -> EngineSample:
        state = self._state(engine_id, second)
        number = 2 if engine_id == LLAMA and second >= LLAMA_BACK_SECONDS else 1
        detail = DETAILS.get(state)
        base = {
            "ts": ts,
            "monotonic_seconds": 1000.0 + second,
            "host": HOST,
            "engine_id": engine_id,
            "epoch_id": _epoch_id(engine_id, number),
            "state": state,
            "detail": detail,
        }
        if state != EngineState.READY:
            return EngineSample(**base)
        if engine_id == LLAMA:
            lived = second if number == 1 else second - LLAMA_BACK_SECONDS
            live = LLAMA_TOKENS * lived
            settled = math.floor(live / LLAMA_REQUEST_TOKENS) * LLAMA_REQUEST_TOKENS
            return EngineSample(
                **base,
                generation_tokens_total=settled,
                generation_live_tokens_total=live,
                prompt_tokens_total=410.0 * lived,
                generation_seconds_total=settled * 4 / LLAMA_TOKENS,
                prompt_seconds_total=0.4 * lived,
                requests_running=4.0,
                requests_waiting=float(3 + (second // 20) % 3),
                kv_used_fraction=0.81,
                kv_capacity_tokens=32768.0,
            )
        return EngineSample(
            **base,
            generation_tokens_total=vllm_tokens(second),
            prompt_tokens_total=3100.0 * second,
            prompt_with_cached_tokens_total=4000.0 * second,
            prefix_cache_query_tokens_total=4000.0 * second,
            prefix_cache_hit_tokens_total=900.0 * second,
            requests_finished_total=math.floor(3.0 * second),
            preemptions_total=0.0,
            requests_running=float(14 + round(3 * math.sin(second / 12))),
            requests_waiting=float(max(0, round(2 * math.sin(second / 30)))),
            kv_used_fraction=0.18 + 0.02 * math.sin(second / 25),
            kv_capacity_tokens=218_000.0,
        )

    def _machine(self, ts: datetime, second: int) -> Iterator[Row]:
        wave = math.sin(2 * math.pi * second / WAVE_SECONDS)
        used = [75.5 + 0.2 * wave, 62.0][: self.gpus]
        for gpu in range(self.gpus):
            yield DeviceSample(
                ts,
                HOST,
                _gpu(gpu),
                SourceState.OK,
                None,
                memory_total_bytes=80 * GIB,
                memory_used_bytes=int(used[gpu % 2] * GIB),
                memory_reserved_bytes=int(0.6 * GIB),
                utilisation_fraction=(0.86 + 0.1 * wave) if gpu == 0 else 0.04,
                power_watts=(540 + 60 * wave) if gpu == 0 else 118.0,
                power_limit_watts=700.0,
                temperature_celsius=61.0 if gpu == 0 else 38.0,
                sm_clock_hertz=1.755e9,
                memory_clock_hertz=2.619e9,
            )
        yield HostSample(ts, HOST, 0.22 + 0.05 * wave, 64, 14.0, 512 * GIB, 430 * GIB, int((82 + wave) * GIB), 0, 0)
        for source_id, kind in (
            ("host", "host"),
            ("device:nvidia", "device"),
            ("discovery", "discovery"),
            ("store", "store"),
        ):
            if kind == "device" and not self.gpus:
                text = (
                    "The NVIDIA driver's library (libnvidia-ml.so.1) is not installed; install the driver to see GPUs."
                )
                yield SourceHealth(ts, HOST, source_id, kind, SourceState.DRIVER_MISSING, 0.001, 0.0, 1.0, text, None)
            else:
                yield SourceHealth(ts, HOST, source_id, kind, SourceState.OK, 0.004, 0.001, 1.0, None, None)

    def _memory(self, engine_id: str, ts: datetime, second: int) -> Iterator[Row]:
        state = self._state(engine_id, second)
        if state in (EngineState.STOPPED, EngineState.UNREACHABLE):
            return
        number = 2 if engine_id == LLAMA and second >= LLAMA_BACK_SECONDS else 1
        epoch = _epoch_id(engine_id, number)
        device = {VLLM: 0, LLAMA: 0, SECOND: 1}.get(engine_id)
        held = {VLLM: 65.6, LLAMA: 7.7, SECOND: 58.0}[engine_id] if device is not None else 0.0
        pid = _pid(engine_id)
        if device is not None and device < self.gpus:
            size = int(held * GIB)
            yield ProcessMemory(ts, HOST, engine_id, epoch, _gpu(device), pid, "engine", "nvml_process", size)
        resident = int((2.9 if engine_id != LLAMA else 1.2) * GIB)
        yield ProcessMemory(ts, HOST, engine_id, epoch, None, pid, "engine", "rss", resident, 1.1, 3)
        if engine_id == VLLM and self.gpus:
            yield ProcessMemory(ts, HOST, None, None, _gpu(0), 900, "Xorg", "nvml_process", int(0.9 * GIB))

    def _engine_health(self, engine_id: str, ts: datetime) -> SourceHealth:
        second = int((ts - self.start).total_seconds())
        state = self._state(engine_id, second)
        found_by = f"process {_pid(engine_id)} listens on 127.0.0.1:{engine_id.rsplit('-', 1)[1]}"
        return SourceHealth(
            ts, HOST, f"engine:{engine_id}", "engine", state, 0.012, 0.002, 2.0, DETAILS.get(state), found_by
        )


def vllm_tokens(second: float) -> float:
    """Tokens that the demo's vLLM has generated after `second` seconds: the integral of 600 + 60 sin(2 pi t / 90)."""
    omega = 2 * math.pi / WAVE_SECONDS
    return VLLM_TOKENS * second + VLLM_WAVE / omega * (1 - math.cos(omega * second))


def _histograms(ts: datetime, second: int) -> Iterator[Row]:
    """Exponential latencies: TTFT with mean 0.3 s at 3 requests/s, ITL with mean 22 ms at 600 tokens/s."""
    for quantity, bounds, mean, per_second in (
        ("ttft_seconds", TTFT_BOUNDS, 0.3, 3.0),
        ("itl_seconds", ITL_BOUNDS, 0.022, VLLM_TOKENS),
    ):
        total = per_second * second
        for le in bounds:
            share = 1.0 if math.isinf(le) else 1 - math.exp(-le / mean)
            count = float(math.floor(total * share))
            yield LatencyBucket(ts, 1000.0 + second, HOST, VLLM, _epoch_id(VLLM, 1), quantity, le, count, total * mean)


def _pid(engine_id: str) -> int:
    return {VLLM: 4711, LLAMA: 4802, SGLANG: 5120, SECOND: 5333}[engine_id]


def _epoch_id(engine_id: str, number: int) -> str:
    return f"{engine_id}-{number}"


def _gpu(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-00000000000{number}"
