"""
llama.cpp's `llama-server`: recognising it and sampling it.

What a GET may change decides what is asked. `/slots` wakes a sleeping server and, asked again and
again, keeps an idle one from sleeping; so did `/metrics` before pull request 27376 (August 2026).
`/props` never does and is asked first wherever sleep is possible. A server that is working isn't
idle, so `/slots` is harmless then, and when nothing runs its answer is known without asking.
A router's models are engines of their own: see `collectors.engines.llamacpp_router`.

A scrape of `/metrics` also ends the window over which the server averages its two throughput
gauges. They are not read here, but a second reader of the same server sees its own disturbed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, ClassVar

from collectors.engines import llamacpp_metrics, llamacpp_router
from collectors.engines.answers import (
    METRICS_TEXT,
    UNAUTHORISED_REMEDY,
    after_error,
    after_status,
    count_of,
    error_message,
    json_document,
    json_object,
    nothing_read,
    text_of,
)
from collectors.engines.base import (
    Absence,
    Endpoint,
    EngineReading,
    Http,
    Identity,
    Offered,
    Reading,
    Response,
)
from collectors.engines.commandline import Options, fact_values, options_of
from collectors.exposition import Exposition, MalformedExpositionError, parse
from collectors.http_errors import HttpError, TimedOutError
from store.model import EngineState, Offer

_METRICS_REMEDY = "Start llama-server with --metrics."
_NO_METRICS = Absence(Offer.DISABLED, "llama-server runs without --metrics.", _METRICS_REMEDY)
_ASLEEP = "The model sleeps (--sleep-idle-seconds); a request wakes it up."
# The oldest build on which reading /metrics was seen not to wake the model (b11434, 0.6.0-dev).
_BUILD_THAT_SLEEPS_ON = 11_434
_BUILD = re.compile(r"b(\d+)-")
_ARGUMENT_FACTS = {
    "gpu_layers": ("--n-gpu-layers", "--gpu-layers", "-ngl"),
    "context_size": ("--ctx-size", "-c"),
    "parallel": ("--parallel", "-np"),
    "cache_type_k": ("--cache-type-k", "-ctk"),
    "cache_type_v": ("--cache-type-v", "-ctv"),
    "flash_attention": ("--flash-attn", "-fa"),
    "split_mode": ("--split-mode", "-sm"),
    "tensor_split": ("--tensor-split", "-ts"),
    "cpu_moe_layers": ("--n-cpu-moe", "-ncmoe"),
    "batch_size": ("--batch-size", "-b"),
    "ubatch_size": ("--ubatch-size", "-ub"),
    "threads": ("--threads", "-t"),
    "cache_ram_mib": ("--cache-ram", "-cram"),
    "draft_model": ("--model-draft", "-md"),
    "sleep_idle_seconds": ("--sleep-idle-seconds",),
}


@dataclass(frozen=True, slots=True)
class _Sleep:
    """What the command line says about sleep: `set` it will sleep, `possible` it may, for all that can be seen."""

    set: bool
    possible: bool


class LlamaCpp:
    """The adapter of llama-server."""

    kind: ClassVar[str] = "llama.cpp"
    title: ClassVar[str] = "llama.cpp"
    usual_ports: ClassVar[tuple[int, ...]] = (
        8080,
        9931,
    )  # 9931: announced as the next default (ggml-org/llama.cpp PR 26508)
    start_hint: ClassVar[str] = "llama-server -m MODEL.gguf --port 8080 --metrics"
    offers: ClassVar[Mapping[str, Offered | Absence]] = llamacpp_metrics.OFFERS

    def looks_like(self, arguments: tuple[str, ...], process_name: str) -> bool:
        """A `llama-server` of any build, or the unified binary as `llama serve`."""
        name = PurePath(arguments[0]).name if arguments else process_name
        if name.startswith("llama-server"):
            return True
        return name in ("llama", "llama.exe") and arguments[1:2] in (("serve",), ("server",))

    def identify(self, endpoint: Endpoint, http: Http) -> Identity | None:
        """
        Recognise llama-server by `/props` or by its `Server` header, asleep, loading and locked ones too.

        Raises `HttpError` when the endpoint doesn't answer.
        """
        answer = http.get(endpoint, "/props")
        props = json_object(answer) if answer.status == 200 else None
        if props is not None and props.get("role") == "router":
            return self._router_identity(props, llamacpp_router.list_models(endpoint, http))
        if props is not None and isinstance(props.get("default_generation_settings"), dict):
            models = http.get(endpoint, "/v1/models")
            data = (json_object(models) or {}).get("data") if models.status == 200 else None
            card = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
            return self._identity(endpoint, props, card, locked=models.status in (401, 403))
        ours = _is_llama_cpp(answer) or self.looks_like(endpoint.arguments, "")
        if not ours or answer.status not in (401, 403, 503):
            return None
        refused = after_status(answer, "/props", self.title)
        return Identity(kind=self.kind, state=refused.state, detail=refused.detail)

    def expand(self, endpoint: Endpoint, identity: Identity, http: Http) -> Sequence[tuple[Endpoint, Identity]]:
        """The models that a router has loaded, as engines of their own. Raises `HttpError`."""
        if identity.facts.get("role") != "router":
            return ()
        listed = llamacpp_router.list_models(endpoint, http)
        if isinstance(listed, Response):
            return ()
        return [
            (at, self._model_identity(at, model, http))
            for model in listed
            if model.status in llamacpp_router.RUNNING
            for at in [llamacpp_router.endpoint_of(endpoint, model)]
        ]

    def sample(self, endpoint: Endpoint, http: Http, *, histograms: bool) -> EngineReading:
        """Read `/metrics` and `/slots`, and `/props` first where the server may be asleep."""
        try:
            return self._sample(endpoint, http)
        except HttpError as error:
            return after_error(endpoint, error, self.title)
        except MalformedExpositionError as error:
            return nothing_read(EngineState.UNREACHABLE, f"GET /metrics is not answered by llama.cpp: {error}.")

    def _sample(self, endpoint: Endpoint, http: Http) -> EngineReading:
        options = options_of(endpoint.arguments) if self.looks_like(endpoint.arguments, "") else None
        sleep, status = _sleep(options, endpoint), None
        if endpoint.model is not None:
            listed = llamacpp_router.list_models(endpoint, http)
            if isinstance(listed, Response):
                return after_status(listed, "/models", self.title)
            status = llamacpp_router.status_of(listed, endpoint.model)
            if status not in llamacpp_router.RUNNING:
                return llamacpp_router.not_loaded(status)
        query = llamacpp_router.query(endpoint)
        props: dict[str, Any] = {}
        if sleep.possible or status == "sleeping":
            answer = http.get(endpoint, f"/props{query}")
            if answer.status != 200:
                return _refused(answer, "/props")
            props = json_object(answer) or {}
            if props.get("role") == "router":
                return llamacpp_router.router_reading(llamacpp_router.list_models(endpoint, http))
        asleep = props.get("is_sleeping") is True or status == "sleeping"
        if (asleep or sleep.set) and not _sleeps_on(props):
            if asleep:
                return nothing_read(EngineState.SLEEPING, _ASLEEP)
            return nothing_read(
                EngineState.METRICS_DISABLED,
                "Not sampled: on this build of llama.cpp reading /metrics would keep the model from going to sleep.",
                f"Update llama.cpp to b{_BUILD_THAT_SLEEPS_ON} or newer, or start it without --sleep-idle-seconds.",
            )
        answer = http.get(endpoint, f"/metrics{query}", accept=METRICS_TEXT)
        if answer.status == 400 and "model name" in (error_message(answer) or ""):
            return llamacpp_router.router_reading(llamacpp_router.list_models(endpoint, http))
        if answer.status not in (200, 404, 501):
            return _refused(answer, "/metrics")
        exposition = parse(answer.body, answer.content_type, llamacpp_metrics.WANTED) if answer.status == 200 else None
        if exposition is not None and not any(f.startswith("llamacpp_") for f in exposition.families):
            return nothing_read(
                EngineState.UNREACHABLE, "GET /metrics has no series of llama.cpp: another server answers."
            )
        running = exposition.value("llamacpp:requests_processing") if exposition is not None else None
        slots: Slots | Absence
        if asleep or (sleep.set and exposition is None):
            slots = Absence(Offer.UNKNOWN, "Reading /slots would keep the model from sleeping.")
        elif sleep.possible and running == 0:
            slots = _idle_slots(props)
        else:
            slots = _read_slots(endpoint, http, query)
        reading = _map(endpoint, options, exposition, slots, asleep=asleep)
        marker = answer.headers.get("process-start-time-unix")
        return replace(reading, restart_marker=marker)

    def _router_identity(self, props: dict[str, Any], listed: list[llamacpp_router.RouterModel] | Response) -> Identity:
        facts: dict[str, Any] = {"role": "router", "max_instances": count_of(props.get("max_instances"))}
        if isinstance(listed, Response):
            detail = f"The router's models can't be listed: GET /models answered {listed.status}."
            if listed.status in (401, 403):
                detail += f" {UNAUTHORISED_REMEDY}"
        else:
            facts["models"] = llamacpp_router.statuses(listed)
            detail = llamacpp_router.describe_models(listed)
        return Identity(
            kind=self.kind,
            state=EngineState.READY,
            detail=detail,
            version=text_of(props.get("build_info"), 100),
            facts={name: value for name, value in facts.items() if value is not None},
            models_come_and_go=True,
        )

    def _model_identity(self, endpoint: Endpoint, model: llamacpp_router.RouterModel, http: Http) -> Identity:
        """What the child of a loaded model tells; its name and state where it tells nothing now."""
        try:
            answer = http.get(endpoint, f"/props{llamacpp_router.query(endpoint)}")
        except TimedOutError:
            answer = None
        props = json_object(answer) if answer is not None and answer.status == 200 else None
        if props is None or not isinstance(props.get("default_generation_settings"), dict):
            return Identity(kind=self.kind, state=EngineState.BUSY, model_id=model.model_id)
        identity = self._identity(endpoint, props, model.card, locked=False)
        return replace(identity, model_id=model.model_id)

    def _identity(self, endpoint: Endpoint, props: dict[str, Any], card: dict[str, Any], *, locked: bool) -> Identity:
        meta: dict[str, Any] = card["meta"] if isinstance(card.get("meta"), dict) else {}
        path = text_of(props.get("model_path"))
        name = text_of(props.get("model_alias")) or text_of(card.get("id")) or path
        options = options_of(endpoint.arguments) if self.looks_like(endpoint.arguments, "") else None
        facts: dict[str, Any] = {
            "weights_bytes": count_of(meta.get("size")),
            "parameters": count_of(meta.get("n_params")),
            "training_context_tokens": count_of(meta.get("n_ctx_train")),
            "modalities": sorted(k for k, v in (props.get("modalities") or {}).items() if v is True) or None,
            "metrics_enabled": props.get("endpoint_metrics"),
            "slots_enabled": props.get("endpoint_slots"),
        }
        facts = {key: value for key, value in facts.items() if value is not None}
        if options is not None:
            facts |= fact_values(options, _ARGUMENT_FACTS)
            facts["kv_unified"] = llamacpp_metrics.unified_cache(options, endpoint.process_environment)
        state: EngineState = EngineState.READY
        detail: str | None = None
        if props.get("is_sleeping") is True:
            state, detail = EngineState.SLEEPING, _ASLEEP
        elif props.get("endpoint_metrics") is False:
            state, detail = EngineState.METRICS_DISABLED, f"{_NO_METRICS.reason} {_METRICS_REMEDY}"
        elif locked:
            detail = f"The model's facts are not read: /v1/models needs a key. {UNAUTHORISED_REMEDY}"
        return Identity(
            kind=self.kind,
            state=state,
            detail=detail,
            version=text_of(props.get("build_info"), 100),
            model_id=PurePath(name).name if name and name.startswith(("/", "./", "../", "~")) else name,
            model_path=path,
            quantization=text_of(meta.get("ftype")) or text_of(props.get("model_ftype")),
            max_context_tokens=count_of(props["default_generation_settings"].get("n_ctx")),
            slots=count_of(props.get("total_slots")),
            facts=facts,
        )


Slots = llamacpp_metrics.Slots


def _map(
    endpoint: Endpoint, options: Options | None, exposition: Exposition | None, slots: Slots | Absence, *, asleep: bool
) -> EngineReading:
    readings: dict[str, Reading] = {}
    absences: dict[str, Absence] = {}
    detail: str | None
    known = slots if isinstance(slots, Slots) else None
    if exposition is not None:
        llamacpp_metrics.from_metrics(exposition, known, readings, absences)
    if known is not None:
        pool = llamacpp_metrics.capacity(known.count, known.context_tokens, options, endpoint, "/slots")
        if isinstance(pool, Reading):
            readings["kv_capacity_tokens"] = pool
        else:
            absences["kv_capacity_tokens"] = pool
        llamacpp_metrics.from_slots(known, pool, readings, absences)
    elif isinstance(slots, Absence):
        absences["kv_capacity_tokens"] = slots
        if "kv_used_fraction" not in readings:
            absences["kv_used_fraction"] = slots
    llamacpp_metrics.fill_absences(readings, absences, None if exposition else _NO_METRICS, exposition)
    if asleep:
        state, detail = EngineState.SLEEPING, _ASLEEP
    elif exposition is None:
        state, detail = EngineState.METRICS_DISABLED, f"{_NO_METRICS.reason} {_METRICS_REMEDY}"
    else:
        problems = " ".join(f"{problem[:1].upper()}{problem[1:]}." for problem in exposition.problems[:2])
        state, detail = EngineState.READY, problems or None
    return EngineReading(state=state, detail=detail, readings=readings, absences=absences)


def _is_llama_cpp(answer: Response) -> bool:
    return answer.headers.get("server", "").lower().startswith("llama.cpp")


def _sleep(options: Options | None, endpoint: Endpoint) -> _Sleep:
    """Whether the server sleeps when idle. A command line that can't be seen leaves it possible."""
    text = options.text("--sleep-idle-seconds") if options else None
    text = text or endpoint.process_environment.get("LLAMA_ARG_SLEEP_IDLE_SECONDS")
    switched_on = text is not None and not text.startswith("-")
    return _Sleep(set=switched_on, possible=switched_on or options is None)


def _sleeps_on(props: dict[str, Any]) -> bool:
    """Whether reading `/metrics` leaves this build's model asleep."""
    build = _BUILD.match(str(props.get("build_info", "")))
    return build is not None and int(build[1]) >= _BUILD_THAT_SLEEPS_ON


def _idle_slots(props: dict[str, Any]) -> Slots | Absence:
    """The slots of a server on which nothing runs, as `/props` tells them."""
    settings = props.get("default_generation_settings")
    count = count_of(props.get("total_slots"))
    if not isinstance(settings, dict) or count is None:
        return Absence(Offer.UNKNOWN, "The number of slots could not be read from /props.")
    return Slots(count, count_of(settings.get("n_ctx")), processing=0, speculative=False, processing_tokens=0)


def _refused(answer: Response, path: str) -> EngineReading:
    """An error where metrics were asked for; a router says so when it has just unloaded the model."""
    if answer.status == 400 and "not loaded" in (error_message(answer) or ""):
        return llamacpp_router.not_loaded("unloaded")
    return after_status(answer, path, LlamaCpp.title)


def _read_slots(endpoint: Endpoint, http: Http, query: str) -> Slots | Absence:
    """`/slots`; a refusal or silence there doesn't spoil what `/metrics` told."""
    try:
        answer = http.get(endpoint, f"/slots{query}")
    except TimedOutError:
        return Absence(Offer.UNKNOWN, "/slots did not answer in time.")
    if answer.status in (404, 501):
        return Absence(Offer.DISABLED, "llama-server runs without /slots.", "Start llama-server with --slots.")
    slots = llamacpp_metrics.slots_of(json_document(answer)) if answer.status == 200 else None
    return slots or Absence(Offer.UNKNOWN, f"/slots answered {answer.status} with something unexpected.")
