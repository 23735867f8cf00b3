"""
Text Generation Inference (TGI): recognising it and sampling it, versions 1.4 to 3.3.

`/metrics` and `/info` are read and nothing else: `/health` runs a prefill when the last check failed. A family
appears in `/metrics` only after its first event, so the answer of a fresh server is empty. There is no model in
any label. Token counters are the sums of histograms over requests that succeeded; failed ones are in none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, ClassVar

from collectors.engines.answers import (
    METRICS_TEXT,
    after_error,
    after_status,
    count_of,
    declared_absences,
    json_object,
    not_found,
    nothing_read,
    text_of,
)
from collectors.engines.base import (
    Absence,
    Endpoint,
    EngineReading,
    Histogram,
    Http,
    Identity,
    Offered,
    Reading,
    StandsAlone,
)
from collectors.engines.commandline import fact_values, options_of
from collectors.exposition import Exposition, MalformedExpositionError, parse
from collectors.http_errors import HttpError
from store.model import QUANTITIES, EngineState, Offer

_PROGRAMS = ("text-generation-launcher", "text-generation-router", "text-generation-server")
_PREFILL = "tgi_batch_inference_duration_sum"
_BUDGET_HELD = "tgi_batch_current_max_tokens"
_BUDGET = "tgi_batch_max_total_tokens"
_SUCCEEDED = "moves when a request succeeds; failed ones are not in it"
# Quantity -> name, what to know about it.
_VALUES: Mapping[str, tuple[str, str | None]] = {
    "generation_tokens_total": ("tgi_request_generated_tokens_sum", _SUCCEEDED),
    "prompt_with_cached_tokens_total": ("tgi_request_input_length_sum", "counted when a request begins"),
    "requests_finished_total": ("tgi_request_success", None),
    "requests_running": ("tgi_batch_current_size", None),
    "requests_waiting": ("tgi_queue_size", None),
}
_HISTOGRAM_NAMES: Mapping[str, str] = {
    "tpot_seconds": "tgi_request_mean_time_per_token_duration",
    "e2e_seconds": "tgi_request_duration",
    "queue_seconds": "tgi_request_queue_duration",
}
_NO_CACHE = "TGI does not tell which prompt tokens came from its prefix cache."
_NO_TTFT = "TGI does not measure the time to the first token; a load test does."
_WANTED = frozenset((*(name for name, _ in _VALUES.values()), _PREFILL, _BUDGET_HELD, _BUDGET))
_BUCKETS = frozenset(_HISTOGRAM_NAMES.values())
_ARGUMENT_FACTS = {
    "num_shard": ("--num-shard",),
    "dtype": ("--dtype",),
    "kv_cache_dtype": ("--kv-cache-dtype",),
    "cuda_memory_fraction": ("--cuda-memory-fraction",),
    "max_batch_prefill_tokens": ("--max-batch-prefill-tokens",),
    "max_batch_total_tokens": ("--max-batch-total-tokens",),
}
_NO_TRAFFIC = Absence(Offer.UNKNOWN, "No value yet: TGI shows a metric only after its first event.")
_CAPACITY_UNKNOWN = Absence(
    Offer.NOT_OFFERED,
    "TGI tells the size of its token budget only in its log.",
    "Start TGI with --max-batch-total-tokens to set it where it can be seen.",
)


class Tgi(StandsAlone):
    """The adapter of Text Generation Inference."""

    kind: ClassVar[str] = "tgi"
    title: ClassVar[str] = "TGI"
    usual_ports: ClassVar[tuple[int, ...]] = (3000,)
    start_hint: ClassVar[str] = "text-generation-launcher --model-id MODEL --port 3000"
    offers: ClassVar[Mapping[str, Offered | Absence]] = {
        **{quantity: Offered(name, note) for quantity, (name, note) in _VALUES.items()},
        **{quantity: Offered(name, "requests that succeeded") for quantity, name in _HISTOGRAM_NAMES.items()},
        "tpot_seconds": Offered(_HISTOGRAM_NAMES["tpot_seconds"], "time by tokens of a request, its prompt included"),
        "generation_live_tokens_total": Absence(
            Offer.NOT_OFFERED, "TGI counts generated tokens only when a request ends."
        ),
        "prompt_tokens_total": Absence(Offer.NOT_OFFERED, _NO_CACHE),
        "prefix_cache_query_tokens_total": Absence(Offer.NOT_OFFERED, _NO_CACHE),
        "prefix_cache_hit_tokens_total": Absence(Offer.NOT_OFFERED, _NO_CACHE),
        "preemptions_total": Absence(Offer.NOT_OFFERED, "TGI does not preempt requests."),
        "generation_seconds_total": Absence(
            Offer.NOT_OFFERED, "TGI times requests as a whole, prompt and generation together."
        ),
        "prompt_seconds_total": Offered(f'{_PREFILL}{{method="prefill"}}', "wall time of prefill batches"),
        "kv_used_fraction": Offered(
            f"{_BUDGET_HELD} / token budget", "reserved, not used; where the budget can be seen"
        ),
        "kv_capacity_tokens": Offered("--max-batch-total-tokens", "or /info of old versions; else only in TGI's log"),
        "ttft_seconds": Absence(Offer.NOT_OFFERED, _NO_TTFT),
        "itl_seconds": Absence(Offer.NOT_OFFERED, "TGI measures the mean time per token of a request, not each."),
    }

    def looks_like(self, arguments: tuple[str, ...], process_name: str) -> bool:
        """The launcher, the router, or a shard, which Python runs as a script."""
        names = (process_name, *(PurePath(word).name for word in arguments[:2]))
        return any(name in _PROGRAMS for name in names)

    def identify(self, endpoint: Endpoint, http: Http) -> Identity | None:
        """
        Recognise TGI by `/info`; a server for embeddings answers there too, but without `max_best_of`.

        Raises `HttpError` when the endpoint doesn't answer.
        """
        answer = http.get(endpoint, "/info")
        info = (json_object(answer) or {}) if answer.status == 200 else {}
        if "model_id" not in info or "max_best_of" not in info:
            if answer.status not in (401, 403, 503) or not self.looks_like(endpoint.arguments, ""):
                return None
            refused = after_status(answer, "/info", self.title)
            return Identity(kind=self.kind, state=refused.state, detail=refused.detail)
        options = options_of(endpoint.arguments if self.looks_like(endpoint.arguments, "") else ())
        facts: dict[str, Any] = {
            "model_sha": text_of(info.get("model_sha"), 100),
            "dtype": text_of(info.get("model_dtype"), 100),
            "device_type": text_of(info.get("model_device_type"), 100),
            "max_concurrent_requests": count_of(info.get("max_concurrent_requests")),
            "max_input_tokens": count_of(info.get("max_input_tokens")) or count_of(info.get("max_input_length")),
            "max_batch_total_tokens": count_of(info.get("max_batch_total_tokens")),
            "docker_label": text_of(info.get("docker_label"), 100),
        }
        return Identity(
            kind=self.kind,
            state=EngineState.READY,
            version=text_of(info.get("version"), 100),
            model_id=text_of(info.get("model_id")),
            quantization=options.text("--quantize"),
            max_context_tokens=count_of(info.get("max_total_tokens")),
            facts={name: value for name, value in facts.items() if value is not None}
            | fact_values(options, _ARGUMENT_FACTS),
        )

    def sample(self, endpoint: Endpoint, http: Http, *, histograms: bool) -> EngineReading:
        """Read `/metrics`; an empty answer is a server that has had no request yet."""
        try:
            answer = http.get(endpoint, "/metrics", accept=METRICS_TEXT)
            if answer.status != 200:
                return after_status(answer, "/metrics", self.title)
            wanted = _WANTED | _BUCKETS if histograms else _WANTED
            exposition = parse(answer.body, answer.content_type, wanted)
            if exposition.families and not any(family.startswith("tgi_") for family in exposition.families):
                return nothing_read(EngineState.UNREACHABLE, "GET /metrics has no series of TGI: another one answers.")
            budget = self._budget(endpoint, http, exposition)
        except HttpError as error:
            return after_error(endpoint, error, self.title)
        except MalformedExpositionError as error:
            return nothing_read(EngineState.UNREACHABLE, f"GET /metrics is not answered by TGI: {error}.")
        return _read(exposition, budget, histograms=histograms)

    def _budget(self, endpoint: Endpoint, http: Http, exposition: Exposition) -> Reading | None:
        """Tokens that all batches together may reserve: what stands for TGI's KV capacity."""
        if exposition.value(_BUDGET):
            return Reading(exposition.value(_BUDGET), _BUDGET)
        options = options_of(endpoint.arguments if self.looks_like(endpoint.arguments, "") else ())
        if (stated := options.integer("--max-batch-total-tokens")) is not None and stated > 0:
            return Reading(float(stated), "--max-batch-total-tokens")
        try:
            info = json_object(http.get(endpoint, "/info")) or {}
        except HttpError:
            return None
        told = count_of(info.get("max_batch_total_tokens"))  # up to 2.0
        return Reading(float(told), "/info max_batch_total_tokens") if told else None


def _read(exposition: Exposition, budget: Reading | None, *, histograms: bool) -> EngineReading:
    readings: dict[str, Reading] = {}
    absences = declared_absences(Tgi.offers)
    for quantity, (name, note) in _VALUES.items():
        if exposition.series(name):
            readings[quantity] = Reading(exposition.sum(name), f"{name} ({note})" if note else name)
    if exposition.has(_PREFILL, method="prefill"):
        source = f'{_PREFILL}{{method="prefill"}} (wall time of prefill batches)'
        readings["prompt_seconds_total"] = Reading(exposition.sum(_PREFILL, method="prefill"), source)
    if budget is None:
        absences["kv_capacity_tokens"] = absences["kv_used_fraction"] = _CAPACITY_UNKNOWN
    else:
        readings["kv_capacity_tokens"] = budget
        held = exposition.value(_BUDGET_HELD)
        if held is not None and budget.value:
            source = f"{_BUDGET_HELD} / {budget.source} (reserved, not used)"
            readings["kv_used_fraction"] = Reading(held / budget.value, source)
    found: dict[str, Histogram] = {}
    for quantity, name in _HISTOGRAM_NAMES.items():
        if name not in exposition.families:
            continue
        if not histograms:
            absences.pop(quantity, None)
            continue
        buckets = exposition.histogram(name)
        if buckets is not None:
            found[quantity] = Histogram(buckets.buckets, buckets.sum, name)
        elif exposition.series(name):  # quantiles: a summary
            absences[quantity] = Absence(
                Offer.NOT_OFFERED, "This version of TGI gives quantiles since its start, not buckets.", "Update TGI."
            )
        else:
            absences[quantity] = Absence(Offer.UNKNOWN, f"The buckets of {name} could not be read or added up.")
    for quantity in (quantity.name for quantity in QUANTITIES):
        due = quantity not in _HISTOGRAM_NAMES or histograms or _HISTOGRAM_NAMES[quantity] not in exposition.families
        if due and quantity not in readings and quantity not in found and quantity not in absences:
            absences[quantity] = _missing(exposition, quantity)
    fresh = not exposition.families
    problems = " ".join(f"{problem[:1].upper()}{problem[1:]}." for problem in exposition.problems[:2])
    return EngineReading(
        state=EngineState.READY,
        detail="No request yet: TGI's metrics are empty until then." if fresh else problems or None,
        readings=readings,
        histograms=found,
        absences=absences,
    )


def _missing(exposition: Exposition, quantity: str) -> Absence:
    if exposition.partial or exposition.problems:
        return Absence(Offer.UNKNOWN, "Its part of the answer was cut off or could not be read.")
    if "tgi_request_success" not in exposition.families:
        return _NO_TRAFFIC
    name = _HISTOGRAM_NAMES.get(quantity) or (_BUDGET_HELD if quantity == "kv_used_fraction" else None)
    return not_found(name or (_VALUES[quantity][0] if quantity in _VALUES else _PREFILL))
