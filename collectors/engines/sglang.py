"""
SGLang: recognising it and sampling it, versions 0.4.1 to 0.5.23.

`/health*` is never asked: it runs a generation on an idle server and takes a second. `/metrics` needs no key
and answers in text without escaped names only to `Accept: text/plain;version=0.0.4`. `/server_info` makes a
round trip to the scheduler and has leaked API keys: it is asked when identifying only, and named fields are
taken. `/v1/loads` stands in for `/metrics` where that is off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, ClassVar

from collectors.engines import sglang_metrics
from collectors.engines.answers import (
    METRICS_TEXT,
    UNAUTHORISED_REMEDY,
    after_error,
    after_status,
    all_absent,
    count_of,
    declared_absences,
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
    StandsAlone,
)
from collectors.engines.commandline import fact_values, options_of
from collectors.exposition import Exposition, MalformedExpositionError, parse
from collectors.http_errors import HttpError
from store.model import EngineState, Offer

_TITLE = re.compile(r"sglang::(scheduler|detokenizer|data_parallel_controller|tokenizer_worker)")
_NO_METRICS = "SGLang runs without its metrics."
_METRICS_REMEDY = "Start SGLang with --enable-metrics."
_LOADS = "/v1/loads?include=core"
_ARGUMENT_FACTS = {
    "tensor_parallel_size": ("--tp-size", "--tensor-parallel-size", "--tp"),
    "data_parallel_size": ("--dp-size", "--data-parallel-size", "--dp"),
    "pipeline_parallel_size": ("--pp-size", "--pipeline-parallel-size"),
    "mem_fraction_static": ("--mem-fraction-static",),
    "kv_cache_dtype": ("--kv-cache-dtype",),
    "chunked_prefill_size": ("--chunked-prefill-size",),
    "max_running_requests": ("--max-running-requests",),
    "decode_log_interval": ("--decode-log-interval",),
}
# Fields of /server_info (the rest holds keys and the command line): fact name -> field, type.
_SERVER_FACTS: Mapping[str, tuple[str, type]] = {
    "tensor_parallel_size": ("tp_size", int),
    "data_parallel_size": ("dp_size", int),
    "pipeline_parallel_size": ("pp_size", int),
    "mem_fraction_static": ("mem_fraction_static", float),
    "kv_cache_dtype": ("kv_cache_dtype", str),
    "chunked_prefill_size": ("chunked_prefill_size", int),
    "attention_backend": ("attention_backend", str),
    "disable_radix_cache": ("disable_radix_cache", bool),
    "max_total_num_tokens": ("max_total_num_tokens", int),
}


class Sglang(StandsAlone):
    """The adapter of SGLang's HTTP server."""

    kind: ClassVar[str] = "sglang"
    title: ClassVar[str] = "SGLang"
    usual_ports: ClassVar[tuple[int, ...]] = (30000,)
    start_hint: ClassVar[str] = "python -m sglang.launch_server --model-path MODEL --port 30000 --enable-metrics"
    offers: ClassVar[Mapping[str, Offered | Absence]] = sglang_metrics.OFFERS

    def looks_like(self, arguments: tuple[str, ...], process_name: str) -> bool:
        """`python -m sglang.launch_server`, `sglang serve`, or a child by its process title."""
        if any(_TITLE.match(title) for title in (process_name, *arguments[:1])):
            return True
        words = arguments[:8]
        if any(word == "sglang.launch_server" or word.endswith("sglang/launch_server.py") for word in words):
            return True
        names = [PurePath(word).name for word in words]
        return any(pair == ("sglang", "serve") for pair in zip(names, words[1:], strict=False))

    def identify(self, endpoint: Endpoint, http: Http) -> Identity | None:
        """
        Recognise SGLang by `/model_info` or, where that needs a key, by its metrics.

        Raises `HttpError` when the endpoint doesn't answer.
        """
        answer = http.get(endpoint, "/model_info")
        if answer.headers.get("server", "").lower().startswith("llama.cpp"):
            return None  # reading /metrics there could keep a model awake
        if answer.status == 404:
            answer = http.get(endpoint, "/get_model_info")  # before 0.5.6
        model = (json_object(answer) or {}) if answer.status == 200 else {}
        if "model_path" in model and "is_generation" in model:
            return self._identity(endpoint, http, model)
        if answer.status not in (401, 403, 503):
            return None
        exposition = _metrics(endpoint, http) if answer.status != 503 else None
        if exposition is not None and sglang_metrics.is_sglang(exposition):
            return Identity(
                kind=self.kind,
                state=EngineState.READY,
                detail=f"Only the metrics are read: the rest needs a key. {UNAUTHORISED_REMEDY}",
                model_id=sglang_metrics.model_name(exposition),
                max_context_tokens=sglang_metrics.context_tokens(exposition),
                facts=self._argument_facts(endpoint),
            )
        if not self.looks_like(endpoint.arguments, ""):
            return None
        refused = after_status(answer, "/model_info", self.title)
        return Identity(kind=self.kind, state=refused.state, detail=refused.detail)

    def sample(self, endpoint: Endpoint, http: Http, *, histograms: bool) -> EngineReading:
        """Read `/metrics`, or `/v1/loads` where SGLang runs without metrics."""
        try:
            answer = http.get(endpoint, "/metrics", accept=METRICS_TEXT)
            if answer.status == 404:
                return _loads(http.get(endpoint, _LOADS), self._ranks(endpoint))
            if answer.status != 200:
                return after_status(answer, "/metrics", self.title)
            exposition = parse(answer.body, answer.content_type, sglang_metrics.wanted(histograms=histograms))
        except HttpError as error:
            return after_error(endpoint, error, self.title)
        except MalformedExpositionError as error:
            return nothing_read(EngineState.UNREACHABLE, f"GET /metrics is not answered by SGLang: {error}.")
        foreign = exposition.families and not sglang_metrics.is_sglang(exposition)
        if foreign and any(family.startswith(("vllm_", "tgi_", "llamacpp_")) for family in exposition.families):
            return nothing_read(
                EngineState.UNREACHABLE, "GET /metrics has no series of SGLang: another engine answers."
            )
        return sglang_metrics.read(exposition, histograms=histograms, ranks=self._ranks(endpoint))

    def _argument_facts(self, endpoint: Endpoint) -> dict[str, Any]:
        own = self.looks_like(endpoint.arguments, "")
        return dict(fact_values(options_of(endpoint.arguments if own else ()), _ARGUMENT_FACTS))

    def _ranks(self, endpoint: Endpoint) -> int:
        """GPUs of one data-parallel rank by the command line; with attention split by data they share the `tp` GPUs."""
        facts = self._argument_facts(endpoint)
        tensor, pipeline, data = (
            facts[name] if isinstance(facts.get(name), int) else 1
            for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        )
        shared = options_of(endpoint.arguments).has("--enable-dp-attention")
        return max(1, (tensor // data if shared else tensor) * pipeline)

    def _identity(self, endpoint: Endpoint, http: Http, model: dict[str, Any]) -> Identity:
        cards = (json_object(http.get(endpoint, "/v1/models")) or {}).get("data")
        card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], dict) else {}
        server = _server_info(endpoint, http)
        states = server.get("internal_states")
        state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
        facts = self._argument_facts(endpoint)
        for fact, (name, kind) in _SERVER_FACTS.items():
            if isinstance(server.get(name), kind):
                facts[fact] = text_of(server[name], 100) if kind is str else server[name]
        architectures = model.get("architectures")
        if isinstance(architectures, list) and architectures:
            facts["architecture"] = text_of(architectures[0], 100)
        off = server.get("enable_metrics") is False
        return Identity(
            kind=self.kind,
            state=EngineState.METRICS_DISABLED if off else EngineState.READY,
            detail=f"{_NO_METRICS} {_METRICS_REMEDY}" if off else None,
            version=text_of(server.get("version"), 100),
            model_id=text_of(model.get("served_model_name")) or text_of(model.get("model_path")),
            model_path=text_of(model.get("model_path")),
            quantization=text_of(server.get("quantization"), 100),
            max_context_tokens=count_of(card.get("max_model_len")) or count_of(server.get("context_length")),
            slots=count_of(state.get("effective_max_running_requests_per_dp")),
            facts=facts,
        )


def _server_info(endpoint: Endpoint, http: Http) -> dict[str, Any]:
    """`/server_info`, by its older name where that is missing; empty when the scheduler is too busy to answer."""
    try:
        answer = http.get(endpoint, "/server_info")
        if answer.status == 404:
            answer = http.get(endpoint, "/get_server_info")
    except HttpError:
        return {}  # the facts of the last look stay; a fact that is not told now is no change
    return (json_object(answer) or {}) if answer.status == 200 else {}


def _metrics(endpoint: Endpoint, http: Http) -> Exposition | None:
    """What `/metrics` tells about the identity; None where it is no metrics text."""
    answer = http.get(endpoint, "/metrics", accept=METRICS_TEXT)
    try:
        return parse(answer.body, answer.content_type, sglang_metrics.IDENTITY_FAMILIES)
    except MalformedExpositionError:
        return None


def _loads(answer: Response, gpus: int) -> EngineReading:
    """
    The sample from `/v1/loads` (0.5.10 and newer): requests and tokens of every data-parallel rank.

    They are published every 15 decode steps. `gpus`: how many hold one data-parallel rank.
    """
    if answer.status in (401, 403):
        return nothing_read(
            EngineState.UNAUTHORISED,
            f"{_NO_METRICS} GET /v1/loads, which could stand in, answered {answer.status}: an API key is needed.",
            f"{_METRICS_REMEDY} Or: {UNAUTHORISED_REMEDY}",
        )
    loads = (json_object(answer) or {}).get("loads") if answer.status == 200 else None
    ranks = [load for load in loads if isinstance(load, dict)] if isinstance(loads, list) else []
    if not ranks:
        return nothing_read(EngineState.METRICS_DISABLED, _NO_METRICS, _METRICS_REMEDY)
    readings: dict[str, Reading] = {}
    for quantity, name in {
        "requests_running": "num_running_reqs",
        "requests_waiting": "num_waiting_reqs",
        "kv_capacity_tokens": "max_total_num_tokens",
    }.items():
        total = _total(ranks, name)
        if total is not None:
            readings[quantity] = Reading(total, f"/v1/loads {name}")
    used, capacity = _total(ranks, "num_used_tokens"), _total(ranks, "max_total_num_tokens")
    if used is not None and capacity:
        readings["kv_used_fraction"] = Reading(used / capacity, "/v1/loads num_used_tokens / max_total_num_tokens")
    memory = [load["memory"] for load in ranks if isinstance(load.get("memory"), dict)]
    parts = {"weights": "weight_gb", "kv_reserved": "kv_cache_gb", "graphs": "graph_gb"}
    held = {part: _total(memory, name) for part, name in parts.items()} if len(memory) == len(ranks) else {}
    absences = all_absent(Offer.DISABLED, _NO_METRICS, _METRICS_REMEDY) | declared_absences(Sglang.offers)
    return EngineReading(
        state=EngineState.METRICS_DISABLED,
        detail=f"{_NO_METRICS} {_METRICS_REMEDY}",
        readings=readings,
        absences={quantity: absence for quantity, absence in absences.items() if quantity not in readings},
        memory={
            part: Reading(
                value * sglang_metrics.GIB * gpus,
                f"/v1/loads memory {parts[part]}" + (f" x {gpus} ranks" if gpus > 1 else ""),
            )
            for part, value in held.items()
            if value is not None
        },
    )


def _total(rows: list[dict[str, Any]], name: str) -> float | None:
    """The sum over all rows; None where one of them does not tell it."""
    values = [row.get(name) for row in rows]
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return sum(numbers) if len(numbers) == len(values) else None
