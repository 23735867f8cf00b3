"""
vLLM: recognising it and sampling it, versions 0.8.5 to 0.33, Python and Rust frontends.

Read-only by the rules of the engine's own source: `/version`, `/v1/models`, `/metrics` and `/health`
change nothing and run no forward pass; `/server_info` (which shows the environment) is never asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, ClassVar

from collectors.engines import vllm_metrics
from collectors.engines.answers import (
    METRICS_TEXT,
    UNAUTHORISED_REMEDY,
    after_error,
    after_status,
    count_of,
    describe,
    json_object,
    nothing_read,
    state_of_error,
    text_of,
)
from collectors.engines.base import (
    Absence,
    Endpoint,
    EngineReading,
    Http,
    Identity,
    Offered,
    Response,
    StandsAlone,
)
from collectors.engines.commandline import fact_values, options_of
from collectors.exposition import Exposition, MalformedExpositionError, parse
from collectors.http_errors import HttpError
from store.model import EngineState

_WORKER_TITLE = re.compile(r"\S+::(EngineCore?|Worker|APIServer|DPCoordinator)")
_NO_STATS = "/metrics has no series of vLLM: it was started with --disable-log-stats."
_NO_STATS_REMEDY = "Start vLLM without --disable-log-stats."
_ARGUMENT_FACTS = {
    "tensor_parallel_size": ("--tensor-parallel-size", "-tp"),
    "pipeline_parallel_size": ("--pipeline-parallel-size", "-pp"),
    "data_parallel_size": ("--data-parallel-size", "-dp"),
    "enable_expert_parallel": ("--enable-expert-parallel",),
    "dtype": ("--dtype",),
    "max_model_len": ("--max-model-len",),
    "max_num_seqs": ("--max-num-seqs",),
    "max_num_batched_tokens": ("--max-num-batched-tokens",),
    "kv_cache_dtype": ("--kv-cache-dtype",),
    "enforce_eager": ("--enforce-eager",),
    "enable_sleep_mode": ("--enable-sleep-mode",),
    "api_server_count": ("--api-server-count", "-asc"),
    "config_file": ("--config",),
}


class Vllm(StandsAlone):
    """The adapter of vLLM's OpenAI-compatible server."""

    kind: ClassVar[str] = "vllm"
    title: ClassVar[str] = "vLLM"
    usual_ports: ClassVar[tuple[int, ...]] = (8000,)
    start_hint: ClassVar[str] = "vllm serve MODEL --port 8000"
    offers: ClassVar[Mapping[str, Offered | Absence]] = vllm_metrics.OFFERS

    def looks_like(self, arguments: tuple[str, ...], process_name: str) -> bool:
        """A `vllm serve`, an API server module, the Rust frontend, or a worker by its process title."""
        names = [PurePath(word).name for word in arguments[:8]]
        if any(_WORKER_TITLE.match(title) for title in (process_name, *arguments[:1])):
            return True
        if "vllm-rs" in (process_name, *names[:1]):
            return True
        if any(word.startswith("vllm.entrypoints.") and word.endswith("api_server") for word in arguments[:8]):
            return True
        return any(
            name == "vllm" and following == "serve" for name, following in zip(names, arguments[1:9], strict=False)
        )

    def identify(self, endpoint: Endpoint, http: Http) -> Identity | None:
        """
        Recognise vLLM by the owner of its models or, where those need a key, by its metrics.

        Raises `HttpError` when the endpoint doesn't answer.
        """
        answer = http.get(endpoint, "/version")
        if answer.headers.get("server", "").lower().startswith("llama.cpp"):
            return None  # reading /metrics there could keep a model awake
        version = text_of((json_object(answer) or {}).get("version"), 100) if answer.status == 200 else None
        models = http.get(endpoint, "/v1/models")
        cards = _cards(models)
        owned = any(card.get("owned_by") == "vllm" for card in cards)
        if cards and not owned:
            return None
        state, detail, exposition = self._metrics(endpoint, http)
        if not owned and not (exposition and vllm_metrics.is_vllm(exposition)):
            locked = models.status in (401, 403) and version is not None
            if not (locked and self.looks_like(endpoint.arguments, "")):
                return None
        if models.status in (401, 403) and state is EngineState.READY:
            detail = f"The model's path and context length are not read: /v1/models needs a key. {UNAUTHORISED_REMEDY}"
        return self._identity(endpoint, version, cards, exposition, state, detail)

    def sample(self, endpoint: Endpoint, http: Http, *, histograms: bool) -> EngineReading:
        """Read `/metrics`, and `/health`, which alone tells that the engine behind the API server has died."""
        try:
            answer = http.get(endpoint, "/metrics", accept=METRICS_TEXT)
            if answer.status != 200:
                return _refused(answer)
            exposition = parse(answer.body, answer.content_type, vllm_metrics.wanted(histograms=histograms))
            if not vllm_metrics.is_vllm(exposition) and not exposition.partial:
                return nothing_read(EngineState.METRICS_DISABLED, _NO_STATS, _NO_STATS_REMEDY)
            if http.get(endpoint, "/health").status == 503:
                return nothing_read(
                    EngineState.UNREACHABLE,
                    "The API server answers, but the engine behind it has died (GET /health: 503).",
                    "Look at vLLM's log and start it again.",
                )
        except HttpError as error:
            return after_error(endpoint, error, self.title)
        except MalformedExpositionError as error:
            return nothing_read(EngineState.UNREACHABLE, f"GET /metrics is not answered by vLLM: {error}.")
        rust = "openmetrics" in answer.content_type.lower()
        return vllm_metrics.read(exposition, histograms=histograms, rust_frontend=rust)

    def _metrics(self, endpoint: Endpoint, http: Http) -> tuple[EngineState, str | None, Exposition | None]:
        """What `/metrics` says about the state, and its cache configuration."""
        try:
            answer = http.get(endpoint, "/metrics", accept=METRICS_TEXT)
            if answer.status != 200:
                refused = _refused(answer)
                return refused.state, refused.detail, None
            exposition = parse(answer.body, answer.content_type, vllm_metrics.IDENTITY_FAMILIES)
        except HttpError as error:
            return *state_of_error(endpoint, error, self.title), None
        except MalformedExpositionError as error:
            return EngineState.METRICS_DISABLED, f"/metrics is not usable: {error}.", None
        if not vllm_metrics.is_vllm(exposition):
            return EngineState.METRICS_DISABLED, f"{_NO_STATS} {_NO_STATS_REMEDY}", None
        return EngineState.READY, None, exposition

    def _identity(
        self,
        endpoint: Endpoint,
        version: str | None,
        cards: list[dict[str, Any]],
        exposition: Exposition | None,
        state: EngineState,
        detail: str | None,
    ) -> Identity:
        own = self.looks_like(endpoint.arguments, "")
        options = options_of(endpoint.arguments if own else ())
        facts: dict[str, Any] = dict(fact_values(options, _ARGUMENT_FACTS))
        model = None
        if exposition is not None:
            facts |= vllm_metrics.cache_facts(exposition)
            if (engines := vllm_metrics.engine_count(exposition)) > 1:
                facts["engines"] = engines
            labels = next(iter(exposition.series("vllm:num_requests_running")), ())
            model = text_of(dict(labels).get("model_name"))
        base = next((card for card in cards if card.get("parent") is None), {})
        return Identity(
            kind=self.kind,
            state=state,
            detail=detail,
            version=version,
            model_id=text_of(base.get("id")) or model,
            model_path=text_of(base.get("root")) or options.text("--model"),
            quantization=options.text("--quantization", "-q"),
            max_context_tokens=count_of(base.get("max_model_len")) or count_of(options.integer("--max-model-len")),
            slots=count_of(options.integer("--max-num-seqs")),
            facts=facts,
        )


def _cards(models: Response) -> list[dict[str, Any]]:
    """The model cards of a `/v1/models` answer; empty when it is none."""
    data = (json_object(models) or {}).get("data") if models.status == 200 else None
    return [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []


def _refused(answer: Response) -> EngineReading:
    """A `/metrics` that answers with an error although vLLM always has one."""
    if answer.status in (404, 500):
        hint = " (a PROMETHEUS_MULTIPROC_DIR on a network volume is a known cause)" if answer.status == 500 else ""
        return nothing_read(
            EngineState.METRICS_DISABLED,
            f"GET /metrics answered {answer.status} with {describe(answer)}{hint}.",
            "Look at vLLM's log, or configure the address under which its /metrics can be read.",
        )
    return after_status(answer, "/metrics", Vllm.title)
