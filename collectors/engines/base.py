"""
What an adapter for one engine promises, and the small types it speaks.

A new engine is one new file beside this one: a class with `kind`, `offers`, `identify` and `sample`,
listed in `collectors.engines.ADAPTERS`. One that runs no others derives from `StandsAlone`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from store.model import EngineState, Offer


@dataclass(frozen=True, slots=True)
class Child:
    """A `llama-server` that runs a model for the engine above it: a llama.cpp router or Ollama."""

    pid: int
    process_start: float  # Unix time
    arguments: tuple[str, ...]  # redacted
    url: str | None  # its own address on loopback; None where it does not listen yet


@dataclass(frozen=True, slots=True)
class Endpoint:
    """
    One base URL to talk to, with what is known about the process behind it.

    `arguments` is the redacted command line of the root process of the engine, where it can be seen
    (empty otherwise). `api_key` is never stored, logged or sent anywhere but to `url`.
    `model` names one of several models behind the URL (a llama.cpp router), each an engine of its own.
    """

    url: str  # "http://127.0.0.1:8000", no trailing slash
    found_by: str
    name: str | None = None  # configured name
    pid: int | None = None  # root process of the engine
    process_start: float | None = None  # Unix time
    arguments: tuple[str, ...] = ()
    process_environment: Mapping[str, str] = field(default_factory=dict)  # allow-listed names only
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    children: tuple[Child, ...] = ()  # those that can be seen


@dataclass(frozen=True, slots=True)
class Identity:
    """What an endpoint is. Read every 30 s; a change opens a new epoch or is recorded as an event."""

    kind: str
    state: EngineState
    detail: str | None = None
    version: str | None = None
    model_id: str | None = None
    model_path: str | None = None
    quantization: str | None = None
    max_context_tokens: int | None = None
    slots: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # further facts, JSON types, no secrets or prompts
    models_come_and_go: bool = False  # what it serves changes within one life: asked again at every pass


@dataclass(frozen=True, slots=True)
class Reading:
    """A value and where it was read. `value` is None when the engine answered with NaN or infinity."""

    value: float | None
    source: str  # "vllm:generation_tokens_total", "/slots n_prompt_tokens / n_ctx (estimated)"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative buckets as the engine gave them: `(le, count)` rising in `le`, ending with infinity."""

    buckets: tuple[tuple[float, float], ...]
    sum_seconds: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a canonical quantity is missing from a sample, and what the person can do about it."""

    offer: Offer
    reason: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """Where an engine tells a quantity: `source` as in `Reading`, `condition` when it does so only at times."""

    source: str
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class EngineReading:
    """
    One sample of one engine. A quantity is in `readings`/`histograms` or in `absences`, never in both.

    `memory` is what the engine itself says it holds, in bytes, by part: "weights", "kv_reserved" (the whole
    KV cache), "graphs"; from an engine that tells only the sum of its models "models", and "models_on_gpu"
    (the share of "models" that lies on GPUs). Empty where it says nothing.
    """

    state: EngineState
    detail: str | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    absences: Mapping[str, Absence] = field(default_factory=dict)
    restart_marker: str | None = None  # a value that is constant for one life of the process
    marker_change: str = "restarted: its start marker changed"  # what a change of it means, for a person
    memory: Mapping[str, Reading] = field(default_factory=dict)


class Adapter(Protocol):
    """One kind of engine. Instances hold no state of any one endpoint and may be shared by threads."""

    kind: ClassVar[str]  # "vllm", "llama.cpp"
    title: ClassVar[str]  # "vLLM", "llama.cpp"
    usual_ports: ClassVar[tuple[int, ...]]
    start_hint: ClassVar[str]  # the command that starts one, for the page when nothing was found
    offers: ClassVar[Mapping[str, Offered | Absence]]  # every canonical quantity: where it is told, or why never

    def looks_like(self, arguments: tuple[str, ...], process_name: str) -> bool:
        """Whether a process with this command line or title is such an engine (or one of its workers)."""

    def identify(self, endpoint: Endpoint, http: Http) -> Identity | None:
        """Who answers at `endpoint`; None when it is not this kind of engine. Changes no state there."""

    def expand(self, endpoint: Endpoint, identity: Identity, http: Http) -> Sequence[tuple[Endpoint, Identity]]:
        """The further engines behind an identified `endpoint`, each with its `model`. Raises as `identify` does."""

    def sample(self, endpoint: Endpoint, http: Http, *, histograms: bool) -> EngineReading:
        """Read all quantities once. `histograms` says whether buckets are due. Never raises for the engine's faults."""


class StandsAlone:
    """For an adapter whose endpoint is always one engine."""

    def expand(self, endpoint: Endpoint, identity: Identity, http: Http) -> Sequence[tuple[Endpoint, Identity]]:
        """No further engines."""
        return ()


@dataclass(frozen=True, slots=True)
class Response:
    """A finished HTTP answer: `body` is complete and at most the cap."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str]


class Http(Protocol):
    """GET and nothing else. See `collectors.http.HttpClient`."""

    def get(self, endpoint: Endpoint, path: str, *, accept: str = "application/json") -> Response:
        """
        Fetch `endpoint.url + path`.

        Raises `collectors.http.ConnectFailedError` (refused, no route, DNS), `TimedOutError`,
        `TooLargeError` (over the cap), `RedirectedError` (never followed) or `ProtocolError`;
        all are `HttpError`, whose message is fit for a person.
        """
