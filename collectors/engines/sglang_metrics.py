"""
From SGLang's metrics to the canonical quantities, for versions 0.4.1 to 0.5.23.

Scheduler series come once for each rank that reports: one `tp_rank` and `pp_rank` of each `dp_rank` is
taken (with data parallelism the ranks are summed), because the ranks of one model all count the same
requests. Series of the tokenizer manager carry no rank; their labels changed between versions and are
summed over. Its token counters move only when a request ends; `realtime_tokens_total` moves meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from collectors.engines.answers import declared_absences, not_found
from collectors.engines.base import Absence, EngineReading, Histogram, Offered, Reading
from collectors.exposition import Exposition, Labels
from store.model import QUANTITIES, EngineState, Offer

GIB = 2**30  # what SGLang's gauges in "gb" are divided by (srt/utils/common.py get_available_gpu_memory)

_S = "sglang:"
_REALTIME = _S + "realtime_tokens_total"
_EFFECTIVE = _S + "prefill_effective_tokens_total"
_GENERATED = _S + "generation_tokens_total"
_PROMPT = _S + "prompt_tokens_total"
_CACHED = _S + "cached_tokens_total"
_CAPACITY = _S + "max_total_num_tokens"
_KV_USED_TOKENS = _S + "kv_used_tokens"
_USAGE = _S + "token_usage"
_QUEUED = _S + "num_queue_reqs"
_GRAMMAR = _S + "num_grammar_queue_reqs"
_RUNNING = _S + "num_running_reqs"
_CONTEXT = _S + "context_len"
_GRAPHS = _S + "graph_memory_usage_gb"
# In order of preference.
_SUMS: Mapping[str, tuple[str, ...]] = {
    "generation_tokens_total": (_GENERATED,),
    "prompt_with_cached_tokens_total": (_PROMPT,),
    "requests_finished_total": (_S + "num_requests_total", _S + "e2e_request_latency_seconds_count"),
    "preemptions_total": (_S + "num_retracted_requests_total",),
    "generation_seconds_total": (
        _S + "inter_token_latency_seconds_sum",
        _S + "time_per_output_token_seconds_sum",  # 0.4.1
    ),
    "requests_running": (_RUNNING,),
    "kv_capacity_tokens": (_CAPACITY,),
}
_HISTOGRAM_NAMES: Mapping[str, tuple[str, ...]] = {
    "ttft_seconds": (_S + "time_to_first_token_seconds",),
    "itl_seconds": (_S + "inter_token_latency_seconds", _S + "time_per_output_token_seconds"),
    "tpot_seconds": (_S + "request_time_per_output_token_seconds",),
    "e2e_seconds": (_S + "e2e_request_latency_seconds",),
    "queue_seconds": (_S + "queue_time_seconds",),
}
# A request that is not streamed tells its first token only with its 50th, so it tells these two wrongly.
_STREAMED = ("ttft_seconds", "tpot_seconds")
_MEMORY = {"weights": _S + "weight_memory_usage_gb", "kv_reserved": _S + "kv_cache_memory_usage_gb", "graphs": _GRAPHS}
_BY_PRIORITY = (_RUNNING, _QUEUED, _GRAMMAR)  # gauges whose series `priority=""` is the total
_COUNTERS_WITH_TOTAL = (_CACHED,)  # counters of which one series may be the total of the others

_PLAIN = frozenset(
    name.replace(":", "_")
    for name in (
        *(alias for aliases in _SUMS.values() for alias in aliases),
        *(_REALTIME, _EFFECTIVE, _CACHED, _KV_USED_TOKENS, _USAGE, _QUEUED, _GRAMMAR, _CONTEXT),
        *_MEMORY.values(),
    )
)
_BUCKETS = frozenset(name.replace(":", "_") for aliases in _HISTOGRAM_NAMES.values() for name in aliases)
IDENTITY_FAMILIES = frozenset(name.replace(":", "_") for name in (_RUNNING, _PROMPT, _CONTEXT))

_ENDS = "moves when a request ends"
_STREAMING_ONLY = "streaming requests only"
OFFERS: Mapping[str, Offered | Absence] = {
    **{quantity: Offered(names[0], "with --enable-metrics") for quantity, names in _SUMS.items()},
    **{quantity: Offered(names[0], "with --enable-metrics") for quantity, names in _HISTOGRAM_NAMES.items()},
    "generation_tokens_total": Offered(_GENERATED, f"with --enable-metrics; {_ENDS}"),
    "generation_live_tokens_total": Offered(
        f'{_REALTIME}{{mode="decode"}}', "with --enable-metrics, from 0.5.10 on; moves with each log interval"
    ),
    "prompt_tokens_total": Offered(f'{_REALTIME}{{mode="prefill_compute"}}', "with --enable-metrics"),
    "prompt_with_cached_tokens_total": Offered(_PROMPT, f"with --enable-metrics; {_ENDS}"),
    "prefix_cache_query_tokens_total": Offered(_EFFECTIVE, "with --enable-metrics"),
    "prefix_cache_hit_tokens_total": Offered(f"{_EFFECTIVE} of all modes but input", "with --enable-metrics"),
    "preemptions_total": Offered(_S + "num_retracted_requests_total", "with --enable-metrics, from 0.5.10 on"),
    "prompt_seconds_total": Absence(Offer.NOT_OFFERED, "SGLang does not add up the time spent on prompts."),
    "requests_running": Offered(_RUNNING, "also from /v1/loads"),
    "requests_waiting": Offered(f"{_QUEUED} + {_GRAMMAR}", "also from /v1/loads"),
    "kv_used_fraction": Offered(f"{_KV_USED_TOKENS} / {_CAPACITY}", "also from /v1/loads"),
    "kv_capacity_tokens": Offered(_CAPACITY, "from 0.5.6 on; also from /v1/loads"),
    "ttft_seconds": Offered(_HISTOGRAM_NAMES["ttft_seconds"][0], f"with --enable-metrics; {_STREAMING_ONLY}"),
    "tpot_seconds": Offered(_HISTOGRAM_NAMES["tpot_seconds"][0], f"with --enable-metrics; {_STREAMING_ONLY}"),
}
NO_TRAFFIC = Absence(Offer.UNKNOWN, "No value yet: SGLang shows a series only after its first event.")


def wanted(*, histograms: bool) -> frozenset[str]:
    """The families of one sample."""
    return _PLAIN | _BUCKETS if histograms else _PLAIN


def is_sglang(exposition: Exposition) -> bool:
    """Whether any series of SGLang is in it."""
    return any(family.startswith("sglang_") for family in exposition.families)


def model_name(exposition: Exposition) -> str | None:
    """The label that every series carries."""
    for name in (_RUNNING, _PROMPT):
        for labels in exposition.series(name):
            return dict(labels).get("model_name")
    return None


def context_tokens(exposition: Exposition) -> int | None:
    """The longest sequence, where the version tells it."""
    found = [value for value in one_rank(exposition).series(_CONTEXT).values() if value]
    return int(found[0]) if found else None


def one_rank(exposition: Exposition) -> Exposition:
    """The same with one tensor and pipeline rank of each data-parallel rank, and totals instead of their parts."""
    kept = {name: _lowest_rank(rows) for name, rows in exposition.samples.items()}
    for name in _BY_PRIORITY:
        key = name.replace(":", "_")
        kept[key] = _only(kept.get(key, {}), lambda labels: labels.get("priority") == "")
    for name in _COUNTERS_WITH_TOTAL:
        key = name.replace(":", "_")
        kept[key] = _only(kept.get(key, {}), lambda labels: labels.get("cache_source") == "total")
    return replace(exposition, samples={name: rows for name, rows in kept.items() if rows})


def read(exposition: Exposition, *, histograms: bool, ranks: int = 1) -> EngineReading:
    """
    All canonical quantities of one body of metrics.

    `ranks`: GPUs that hold one data-parallel rank; what one of them tells of its memory counts that often.
    """
    exposition = one_rank(exposition)
    readings: dict[str, Reading] = {}
    absences = declared_absences(OFFERS)
    shards = max(1, len({dict(labels).get("dp_rank") for labels in exposition.series(_RUNNING)}))
    over = f" (sum over {shards} data-parallel ranks)" if shards > 1 else ""
    for quantity, names in _SUMS.items():
        name = next((name for name in names if exposition.series(name)), None)
        if name is not None:
            late = f" ({_ENDS})" if name in (_GENERATED, _PROMPT) else ""
            ranked = over if name in (_RUNNING, _CAPACITY) else ""
            readings[quantity] = Reading(exposition.sum(name), name + late + ranked)
    _live(exposition, readings, over)
    _waiting(exposition, readings, over)
    _kv_used(exposition, readings, shards)
    found = _histograms(exposition, absences) if histograms else {}
    for quantity in (quantity.name for quantity in QUANTITIES):
        if quantity not in readings and quantity not in found and quantity not in absences:
            absence = _absence(exposition, quantity, histograms=histograms)
            if absence is not None:
                absences[quantity] = absence
    problems = " ".join(f"{problem[:1].upper()}{problem[1:]}." for problem in exposition.problems[:2])
    return EngineReading(
        state=EngineState.READY,
        detail=problems or None,
        readings=readings,
        histograms=found,
        absences=absences,
        memory=_memory(exposition, over, ranks),
    )


def _live(exposition: Exposition, readings: dict[str, Reading], over: str) -> None:
    """
    Tokens by the live counters (from 0.5.10.post1 on), else what the settled ones allow.

    `prompt_tokens_total - cached_tokens_total` is a counter: both are added to when the same request ends.
    """
    grain = " (moves with each log interval, 40 decode steps by default)"
    if exposition.has(_REALTIME, mode="decode"):
        source = f'{_REALTIME}{{mode="decode"}}{grain}{over}'
        readings["generation_live_tokens_total"] = Reading(exposition.sum(_REALTIME, mode="decode"), source)
    settled, cached = exposition.sum(_PROMPT), exposition.sum(_CACHED)
    if exposition.has(_REALTIME, mode="prefill_compute"):
        computed = exposition.sum(_REALTIME, mode="prefill_compute")
        readings["prompt_tokens_total"] = Reading(computed, f'{_REALTIME}{{mode="prefill_compute"}}{over}')
    elif settled is not None and cached is not None and settled >= cached:
        readings["prompt_tokens_total"] = Reading(settled - cached, f"{_PROMPT} - {_CACHED} ({_ENDS})")
    queries = hits = None
    if exposition.has(_EFFECTIVE, mode="input"):
        queries = exposition.sum(_EFFECTIVE)
        computed = exposition.sum(_EFFECTIVE, mode="input")
        hits = None if queries is None or computed is None else queries - computed
        source, hit_source = _EFFECTIVE, f"{_EFFECTIVE} of all modes but input"
    elif exposition.has(_REALTIME, mode="prefill_cache") and exposition.has(_REALTIME, mode="prefill_compute"):
        hits = exposition.sum(_REALTIME, mode="prefill_cache")
        computed = exposition.sum(_REALTIME, mode="prefill_compute")
        queries = None if hits is None or computed is None else hits + computed
        hit_source = f'{_REALTIME}{{mode="prefill_cache"}}'
        source = f"{hit_source} + prefill_compute"
    elif settled is not None and cached is not None:
        queries, hits, source, hit_source = settled, cached, f"{_PROMPT} ({_ENDS})", f"{_CACHED} ({_ENDS})"
    else:
        return
    readings["prefix_cache_query_tokens_total"] = Reading(queries, source)
    readings["prefix_cache_hit_tokens_total"] = Reading(hits, hit_source)


def _waiting(exposition: Exposition, readings: dict[str, Reading], over: str) -> None:
    """Requests that wait: in the queue and, where there is one, in that for grammars."""
    names = [name for name in (_QUEUED, _GRAMMAR) if exposition.series(name)]
    if _QUEUED in names:
        counts = [exposition.sum(name) for name in names]
        value = None if None in counts else sum(count for count in counts if count is not None)
        readings["requests_waiting"] = Reading(value, " + ".join(names) + over)


def _kv_used(exposition: Exposition, readings: dict[str, Reading], shards: int) -> None:
    """
    Share of the KV cache that running requests hold; what only waits to be reused is not in it.

    `token_usage` is rounded to hundredths and is the fullest of the model's pools; used tokens by capacity
    is finer, and is taken unless another pool (sliding window, recurrent state) is fuller.
    """
    used, capacity, told = exposition.sum(_KV_USED_TOKENS), exposition.sum(_CAPACITY), exposition.mean(_USAGE)
    mean = f" (mean over {shards} data-parallel ranks)" if shards > 1 else ""
    share = used / capacity if used is not None and capacity else None
    if share is not None and (told is None or told <= share + 0.006):
        readings["kv_used_fraction"] = Reading(share, f"{_KV_USED_TOKENS} / {_CAPACITY}")
    elif exposition.series(_USAGE):
        readings["kv_used_fraction"] = Reading(told, _USAGE + mean)


def _histograms(exposition: Exposition, absences: dict[str, Absence]) -> dict[str, Histogram]:
    found: dict[str, Histogram] = {}
    for quantity, names in _HISTOGRAM_NAMES.items():
        name = next((name for name in names if name.replace(":", "_") in exposition.families), None)
        if name is None:
            continue
        key = f"{name.replace(':', '_')}_bucket"
        rows = exposition.samples.get(key, {})
        source, chosen = name, exposition
        if quantity in _STREAMED and any("is_streaming" in dict(labels) for labels in rows):
            source = f'{name}{{is_streaming="true"}}'
            chosen = _filtered(exposition, name.replace(":", "_"), lambda labels: labels.get("is_streaming") == "true")
            if not chosen.samples.get(key):
                absences[quantity] = Absence(Offer.UNKNOWN, "No streaming request has been served yet.")
                continue
        buckets = chosen.histogram(name)
        if buckets is None:
            absences[quantity] = Absence(Offer.UNKNOWN, f"The buckets of {name} could not be read or added up.")
        else:
            found[quantity] = Histogram(buckets.buckets, buckets.sum, source)
    return found


def _absence(exposition: Exposition, quantity: str, *, histograms: bool) -> Absence | None:
    """Why `quantity` was not found; None for a histogram that is there and was not due."""
    names = _HISTOGRAM_NAMES.get(quantity)
    if names is not None and not histograms and any(name.replace(":", "_") in exposition.families for name in names):
        return None
    if exposition.partial or exposition.problems:
        return Absence(Offer.UNKNOWN, "Its part of the answer was cut off or could not be read.")
    if not is_sglang(exposition) or not exposition.series(_GENERATED):
        return NO_TRAFFIC
    if quantity == "generation_live_tokens_total":
        return Absence(
            Offer.NOT_OFFERED,
            "This version of SGLang counts tokens only when a request ends.",
            "Update SGLang to 0.5.10 or newer.",
        )
    declared = OFFERS[quantity]
    if isinstance(declared, Absence):
        return declared
    return not_found(*(names or _SUMS.get(quantity) or (declared.source,)), condition=declared.condition)


def _memory(exposition: Exposition, over: str, ranks: int) -> dict[str, Reading]:
    """Bytes as the schedulers measured them when they started. Tensor and pipeline ranks hold about the same."""
    found = {}
    times = f" x {ranks} ranks" if ranks > 1 else ""
    for part, name in _MEMORY.items():
        value = exposition.sum(name)
        if value is not None:
            found[part] = Reading(value * GIB * ranks, f"{name}{times}{over}")
    return found


def _lowest_rank(rows: Mapping[Labels, float | None]) -> dict[Labels, float | None]:
    """The rows of the lowest tensor, pipeline and expert rank of each data-parallel rank."""
    lowest: dict[str, tuple[int, ...]] = {}
    ranks: dict[Labels, tuple[str, tuple[int, ...]]] = {}
    for labels in rows:
        pairs = dict(labels)
        data = pairs.get("dp_rank", "")
        rank = tuple(_integer(text) for name, text in sorted(pairs.items()) if _is_replica(name))
        ranks[labels] = data, rank
        lowest[data] = min(rank, lowest.get(data, rank))
    return {labels: value for labels, value in rows.items() if lowest[ranks[labels][0]] == ranks[labels][1]}


def _is_replica(label: str) -> bool:
    return label.endswith("_rank") and label != "dp_rank"


def _integer(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _only(
    rows: Mapping[Labels, float | None], is_total: Callable[[Mapping[str, str]], bool]
) -> dict[Labels, float | None]:
    """The rows that are totals; all rows where there are none."""
    totals = {labels: value for labels, value in rows.items() if is_total(dict(labels))}
    return totals or dict(rows)


def _filtered(exposition: Exposition, family: str, keep: Callable[[Mapping[str, str]], bool]) -> Exposition:
    """The exposition with only those rows of a histogram's family for which `keep` holds."""
    samples = dict(exposition.samples)
    for name in (f"{family}_bucket", f"{family}_sum", f"{family}_count"):
        samples[name] = {labels: value for labels, value in samples.get(name, {}).items() if keep(dict(labels))}
    return replace(exposition, samples=samples)
