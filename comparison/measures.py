"""The figures that windows are compared by: their names, units, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal[
    "tok/s", "requests/s", "requests", "s", "bytes", "fraction", "W", "J", "J/token", "cores", "tokens", "count"
]
Better = Literal["more", "less"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a window."""

    key: str
    group: str
    title: str
    unit: Unit
    meaning: str
    better: Better | None = None  # None: neither way is better by itself
    total: bool = False  # grows with the length of the window


def _latency(key: str, title: str, meaning: str) -> tuple[Measure, ...]:
    names = (("mean", "mean"), ("p50", "p50"), ("p95", "p95"), ("p99", "p99"))
    return tuple(Measure(f"{key}_{name}", "Latency", f"{title} {word}", "s", meaning, "less") for name, word in names)


MEASURES: tuple[Measure, ...] = (
    Measure("generation", "Throughput", "Generation", "tok/s",
            "output tokens over elapsed time, idle time included; a load test: in its steady window", "more"),
    Measure("generation_working", "Throughput", "Generation while working", "tok/s",
            "output tokens over the time with a request running", "more"),
    Measure("prompt", "Throughput", "Prompt, computed", "tok/s",
            "prompt tokens that were prefilled, over elapsed time; served from a cache is not in it", "more"),
    Measure("requests", "Throughput", "Requests finished", "requests/s",
            "requests that ended, over elapsed time", "more"),
    Measure("user_speed", "Throughput", "Speed for one user", "tok/s",
            "mean over requests of 1 / TPOT, as the client measured it", "more"),
    *_latency("ttft", "TTFT", "time to first token: by the engine from arrival, by a load test's client from sending"),
    *_latency("tpot", "TPOT", "time per output token of one request after its first token"),
    *_latency("itl", "ITL", "inter-token latency: time between successive outputs of one request"),
    *_latency("e2e", "E2E", "from arrival (or sending) of a request to its last token"),
    Measure("running", "Load", "Running, mean", "requests", "requests that the engine computes, mean over samples"),
    Measure("running_max", "Load", "Running, most", "requests", "the greatest number in one sample"),
    Measure("waiting", "Load", "Waiting, mean", "requests",
            "requests accepted but not begun, mean over samples", "less"),
    Measure("waiting_max", "Load", "Waiting, most", "requests", "the greatest number in one sample", "less"),
    Measure("prefix_hits", "Load", "Prefix cache hits", "fraction", "prompt tokens served from the prefix cache"),
    Measure("preemptions", "Load", "Preemptions", "count",
            "running requests put back because KV cache ran out", "less", total=True),
    Measure("failed", "Load", "Requests failed", "fraction", "requests of the load test that failed", "less"),
    Measure("device_memory", "Memory", "GPU memory, mean", "bytes",
            "held by the engine's processes, mean while any was held", "less"),
    Measure("device_memory_peak", "Memory", "GPU memory, peak", "bytes", "the most in one sample", "less"),
    Measure("weights", "Memory", "Weights", "bytes", "of its newest life in the window", "less"),
    Measure("kv_reserved", "Memory", "KV cache reserved", "bytes", "kept for the cache whether it is used or not"),
    Measure("kv_used", "Memory", "KV cache in use, mean", "fraction", "share of the cache held by running requests"),
    Measure("kv_used_max", "Memory", "KV cache in use, most", "fraction", "the greatest share in one sample"),
    Measure("host_memory", "Memory", "Host memory, mean", "bytes", "resident set of the engine's processes", "less"),
    Measure("host_memory_peak", "Memory", "Host memory, peak", "bytes", "the most in one sample", "less"),
    Measure("cpu", "Power and use", "CPU", "cores", "CPU seconds per second of the engine's processes, mean", "less"),
    Measure("utilisation", "Power and use", "GPU utilisation", "fraction",
            "share of the time in which a kernel ran, mean over the engine's GPUs; not how much of a GPU was used"),
    Measure("power", "Power and use", "GPU power", "W",
            "of the whole GPUs that the engine held memory on, mean", "less"),
    Measure("energy", "Power and use", "GPU energy", "J",
            "of the whole GPUs over the window, idle time included", "less", total=True),
    Measure("joules_per_token", "Power and use", "Energy per output token", "J/token",
            "energy of the whole GPUs over output tokens, idle time included", "less"),
)  # fmt: skip
BY_KEY = {measure.key: measure for measure in MEASURES}
