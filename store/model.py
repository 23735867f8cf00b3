"""
Row types and the catalogue of quantities: what collectors hand to the store.

One dataclass a table, one field a column, in the order of the columns; times are
aware UTC datetimes, sizes are bytes, durations seconds, fractions 0..1. ``None`` means
"not known"; it is never written as 0. The states of engines and quantities say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from store.loadtest_rows import (
    LoadtestJudgement,
    LoadtestRequest,
    LoadtestResource,
    LoadtestRun,
    LoadtestStage,
    Report,
)

Kind = Literal["counter", "gauge", "histogram"]


class EngineState(StrEnum):
    """What a collector observed of an engine at one moment."""

    READY = "ready"
    LOADING = "loading"
    BUSY = "busy"
    SLEEPING = "sleeping"
    UNAUTHORISED = "unauthorised"
    METRICS_DISABLED = "metrics_disabled"
    UNREACHABLE = "unreachable"
    STOPPED = "stopped"


class SourceState(StrEnum):
    """How a source that is not an engine answered: a device driver, the host, the store itself."""

    OK = "ok"
    PARTIAL = "partial"
    DRIVER_MISSING = "driver_missing"
    DRIVER_UNUSABLE = "driver_unusable"
    DEVICE_LOST = "device_lost"
    ERROR = "error"


class Offer(StrEnum):
    """Whether an engine offers a quantity, and if not, why not."""

    OFFERED = "offered"
    NOT_OFFERED = "not_offered"
    DISABLED = "disabled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One canonical quantity: the column or histogram it is stored in, its unit and its meaning."""

    name: str
    kind: Kind
    unit: str
    title: str
    meaning: str


# The canonical quantities, in the order in which they are shown. A counter or gauge is the
# column of the same name in `engine_sample`; a histogram is the `quantity` in `latency_bucket`.
QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        "generation_tokens_total",
        "counter",
        "tokens",
        "Generated tokens",
        "output tokens as the engine counts them; some engines add them only when a request ends",
    ),
    Quantity(
        "generation_live_tokens_total",
        "counter",
        "tokens",
        "Generated tokens, live",
        "a counter that moves while requests run, where the settled one does not",
    ),
    Quantity(
        "prompt_tokens_total",
        "counter",
        "tokens",
        "Prompt tokens computed",
        "prompt tokens that were prefilled; tokens served from a prefix cache are not in it",
    ),
    Quantity(
        "prompt_with_cached_tokens_total",
        "counter",
        "tokens",
        "Prompt tokens received",
        "prompt tokens of all requests, whether computed or served from a prefix cache",
    ),
    Quantity(
        "prefix_cache_query_tokens_total",
        "counter",
        "tokens",
        "Prefix cache queries",
        "prompt tokens looked up in the prefix cache",
    ),
    Quantity(
        "prefix_cache_hit_tokens_total",
        "counter",
        "tokens",
        "Prefix cache hits",
        "prompt tokens served from the prefix cache",
    ),
    Quantity(
        "requests_finished_total",
        "counter",
        "requests",
        "Requests finished",
        "requests that ended, aborted ones included where the engine counts them",
    ),
    Quantity(
        "preemptions_total", "counter", "events", "Preemptions", "running requests put back because KV cache ran out"
    ),
    Quantity(
        "generation_seconds_total",
        "counter",
        "seconds",
        "Generation time",
        "time spent generating, summed over the requests that ran at once",
    ),
    Quantity("prompt_seconds_total", "counter", "seconds", "Prompt time", "time spent on prompts"),
    Quantity("requests_running", "gauge", "requests", "Running", "requests that the engine is computing now"),
    Quantity("requests_waiting", "gauge", "requests", "Waiting", "requests accepted but not yet started"),
    Quantity(
        "kv_used_fraction", "gauge", "fraction", "KV cache in use", "share of the KV cache held by running requests"
    ),
    Quantity("kv_capacity_tokens", "gauge", "tokens", "KV cache capacity", "tokens that the KV cache can hold"),
    Quantity(
        "ttft_seconds",
        "histogram",
        "seconds",
        "TTFT",
        "time to first token: arrival at the server to its first output token",
    ),
    Quantity(
        "itl_seconds",
        "histogram",
        "seconds",
        "ITL",
        "inter-token latency: time between successive outputs of one request",
    ),
    Quantity(
        "tpot_seconds", "histogram", "seconds", "TPOT", "time per output token of one request after its first token"
    ),
    Quantity("e2e_seconds", "histogram", "seconds", "E2E latency", "arrival of a request to its last token"),
    Quantity(
        "queue_seconds", "histogram", "seconds", "Queue time", "time between queueing and scheduling of a request"
    ),
)

COUNTERS = tuple(q.name for q in QUANTITIES if q.kind == "counter")
GAUGES = tuple(q.name for q in QUANTITIES if q.kind == "gauge")
HISTOGRAMS = tuple(q.name for q in QUANTITIES if q.kind == "histogram")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine at an address. It keeps its identity when the process behind it restarts."""

    table: ClassVar[str] = "engine"
    host: str
    engine_id: str  # e.g. "vllm-8000"; with the address where it is not loopback: "vllm-10.0.0.7-8000"
    kind: str  # the adapter: "vllm", "llama.cpp", ...
    label: str  # what a person recognises: configured name, else model and engine
    url: str
    found_by: str  # "process 4711 listens on 127.0.0.1:8000", "configuration", ...
    first_seen: datetime


@dataclass(frozen=True, slots=True)
class Epoch:
    """One life of an engine's process, with what it ran with. Arguments are redacted before they get here."""

    table: ClassVar[str] = "epoch"
    host: str
    engine_id: str
    epoch_id: str
    started: datetime  # start of the process where it is known, else when the collector first saw it
    started_is_process_start: bool
    first_seen: datetime
    pid: int | None
    version: str | None
    model_id: str | None
    model_path: str | None
    quantization: str | None
    max_context_tokens: int | None
    slots: int | None  # llama.cpp: parallel slots; vLLM: max_num_seqs where known
    arguments: str | None  # JSON list of the redacted command line
    facts: str | None  # JSON object of further facts the engine told about itself


@dataclass(frozen=True, slots=True)
class EngineSample:
    """Counters and gauges of one engine at one moment. Counters are raw; rates are made in queries."""

    table: ClassVar[str] = "engine_sample"
    ts: datetime
    monotonic_seconds: float  # the collector host's monotonic clock: elapsed time that no clock change bends
    host: str
    engine_id: str
    epoch_id: str
    state: str
    detail: str | None  # what was observed, and what to do, when the state is not "ready"
    generation_tokens_total: float | None = None
    generation_live_tokens_total: float | None = None
    prompt_tokens_total: float | None = None
    prompt_with_cached_tokens_total: float | None = None
    prefix_cache_query_tokens_total: float | None = None
    prefix_cache_hit_tokens_total: float | None = None
    requests_finished_total: float | None = None
    preemptions_total: float | None = None
    generation_seconds_total: float | None = None
    prompt_seconds_total: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_used_fraction: float | None = None
    kv_capacity_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class QuantityOffer:
    """Where a quantity of an engine comes from, or why it is missing. Written when it changes."""

    table: ClassVar[str] = "quantity_offer"
    ts: datetime
    host: str
    engine_id: str
    epoch_id: str
    quantity: str
    offer: str
    source: str | None  # the metric or endpoint the value is read from
    reason: str | None  # why it is not offered
    remedy: str | None  # what the person can do about it


@dataclass(frozen=True, slots=True)
class LatencyBucket:
    """One bucket of a cumulative histogram. All buckets of a histogram share one `ts`."""

    table: ClassVar[str] = "latency_bucket"
    ts: datetime
    monotonic_seconds: float
    host: str
    engine_id: str
    epoch_id: str
    quantity: str
    le: float  # upper bound in seconds, inclusive; infinity for the last bucket
    cumulative_count: float
    sum_seconds: float | None  # sum of all observations, the same on every bucket of the histogram


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. Written when it is first seen and when one of its facts changes."""

    table: ClassVar[str] = "device"
    host: str
    device_id: str  # the driver's own unique name, e.g. the NVML UUID
    vendor: str
    index: int
    name: str
    memory_total_bytes: int | None
    driver_version: str | None
    first_seen: datetime


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One device at one moment."""

    table: ClassVar[str] = "device_sample"
    ts: datetime
    host: str
    device_id: str
    state: str
    detail: str | None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # the driver's own reserve included
    memory_reserved_bytes: int | None = None
    utilisation_fraction: float | None = None
    memory_utilisation_fraction: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    energy_joules_total: float | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """The host at one moment."""

    table: ClassVar[str] = "host_sample"
    ts: datetime
    host: str
    cpu_fraction: float | None  # share of all cores that was busy since the previous sample
    cpu_count: int | None
    load_1m: float | None
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    memory_used_bytes: int | None
    swap_total_bytes: int | None
    swap_used_bytes: int | None


@dataclass(frozen=True, slots=True)
class DiskSample:
    """The store's size and the room on its disk at one moment."""

    table: ClassVar[str] = "disk_sample"
    ts: datetime
    host: str
    file_bytes: int
    wal_bytes: int
    archive_bytes: int
    free_bytes: int | None  # what this user may still fill
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """
    Memory held by a process tree (an engine) or by one process (anything else on a GPU).

    On a device: one row for each (device, process). In host memory (`device_id` is None): one row
    for each engine, the sum over its process tree, with the CPU it used.
    """

    table: ClassVar[str] = "process_memory"
    ts: datetime
    host: str
    engine_id: str | None  # None: no engine that is known
    epoch_id: str | None
    device_id: str | None  # None: host memory
    pid: int | None
    process_name: str | None
    method: str  # nvml_process | fdinfo | unified | device_delta | rss; none: the driver does not tell
    memory_bytes: int | None
    cpu_cores: float | None = None  # CPU seconds per second since the previous sample
    process_count: int | None = None


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How one sampling of one source went: the Sources page is made of these."""

    table: ClassVar[str] = "source_health"
    ts: datetime
    host: str
    source_id: str  # "engine:vllm-8000", "device:nvidia", "host", "discovery", "store"
    kind: str  # engine | device | host | discovery | store
    state: str
    duration_seconds: float | None
    lateness_seconds: float | None  # how long after its due time the sampling began
    interval_seconds: float | None
    detail: str | None  # what was observed and what to do, in one or two sentences
    found_by: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: engine started, stopped, restarted, configuration changed, device lost ..."""

    table: ClassVar[str] = "event"
    ts: datetime
    host: str
    engine_id: str | None
    epoch_id: str | None
    device_id: str | None
    kind: str
    text: str
    details: str | None = None  # JSON object


@dataclass(frozen=True, slots=True)
class MemoryScore:
    """
    One part of a running engine's memory plan beside what was measured, in the unit of the row.

    `error_fraction` is 0 where the measurement lies within the prediction, else its distance from the nearer
    bound as a share of the measurement, positive where too much was predicted. All rows of one comparison share
    one `ts`; the first of them carries the plan itself.
    """

    table: ClassVar[str] = "memory_plan"
    ts: datetime
    host: str
    engine_id: str
    epoch_id: str
    engine: str  # kind of the engine: "vllm", "llama.cpp"
    engine_version: str | None
    model: str | None
    model_file: str | None  # file, folder or catalogue entry that the facts were read from
    part: str  # "host memory", "memory of GPU 0", "KV cache" ...; "plan" where no plan could be made
    unit: str  # "bytes" or "tokens"
    predicted_low: float | None
    predicted_high: float | None
    measured: float | None
    measured_method: str | None
    error_fraction: float | None
    reason: str | None  # why a figure is missing, or what the comparison leaves out
    document: str | None = None  # JSON of the plan


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """
    One part of what an engine's memory is made of. All parts of an engine are written anew when one changes.

    They share one `ts`, and the newest set holds. What is in use of a reserved cache is made in queries.
    """

    table: ClassVar[str] = "memory_part"
    ts: datetime
    host: str
    engine_id: str
    epoch_id: str
    part: str  # weights | kv_reserved | graphs | models (weights and cache, where only their sum is told)
    place: str | None  # device | host; None: not known where
    memory_bytes: int | None  # over all devices of the place; None: `source` says why it is not known
    derived: bool  # computed by the rule in `source`, not the engine's own figure
    source: str


@dataclass(frozen=True, slots=True)
class Startup:
    """How long one life of an engine took to start. Written again when its first token is seen."""

    table: ClassVar[str] = "startup"
    ts: datetime
    host: str
    engine_id: str
    epoch_id: str
    started: datetime  # start of the process where it is known, else when the collector first saw it
    ready_seconds: float | None  # from `started` to the first sample that found it ready; None: `note` says why
    first_token_seconds: float | None  # from `started` to the first sample that found a token; None: none yet
    resolution_seconds: float | None  # by which the figures may be too high
    note: str | None  # why a figure is missing


Row = (
    Engine
    | Epoch
    | EngineSample
    | QuantityOffer
    | LatencyBucket
    | Device
    | DeviceSample
    | HostSample
    | ProcessMemory
    | DiskSample
    | SourceHealth
    | Event
    | MemoryScore
    | MemoryPart
    | Startup
    | LoadtestRun
    | LoadtestStage
    | LoadtestRequest
    | LoadtestJudgement
    | LoadtestResource
    | Report
)
ROW_TYPES: tuple[type[Row], ...] = (
    Engine, Epoch, EngineSample, QuantityOffer, LatencyBucket, Device, DeviceSample, HostSample,
    ProcessMemory, DiskSample, SourceHealth, Event, MemoryScore, MemoryPart, Startup,
    LoadtestRun, LoadtestStage, LoadtestRequest, LoadtestJudgement, LoadtestResource, Report,
)  # fmt: skip
