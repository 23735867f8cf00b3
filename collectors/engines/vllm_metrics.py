"""
From vLLM's metrics to the canonical quantities, for versions 0.8.5 to 0.33.

Names are tried in order of preference because vLLM renamed and removed metrics between versions.
With data parallelism every metric comes once for each `engine`: counts are summed, shares averaged,
histograms added bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Mapping

from collectors.engines.answers import declared_absences, not_found
from collectors.engines.base import Absence, EngineReading, Histogram, Offered, Reading
from collectors.exposition import Exposition
from store.model import HISTOGRAMS, EngineState, Offer

_SUMS: Mapping[str, tuple[str, ...]] = {
    "generation_tokens_total": ("vllm:generation_tokens_total",),
    "prompt_with_cached_tokens_total": ("vllm:prompt_tokens_total",),
    "prefix_cache_query_tokens_total": ("vllm:prefix_cache_queries_total",),
    "prefix_cache_hit_tokens_total": ("vllm:prefix_cache_hits_total",),
    "requests_finished_total": ("vllm:request_success_total",),
    "preemptions_total": ("vllm:num_preemptions_total",),
    "generation_seconds_total": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "prompt_seconds_total": ("vllm:request_prefill_time_seconds_sum",),
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
}
_KV_USED = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_HISTOGRAM_NAMES: Mapping[str, tuple[str, ...]] = {
    "ttft_seconds": ("vllm:time_to_first_token_seconds",),
    "itl_seconds": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "tpot_seconds": ("vllm:request_time_per_output_token_seconds",),
    "e2e_seconds": ("vllm:e2e_request_latency_seconds",),
    "queue_seconds": ("vllm:request_queue_time_seconds",),
}
_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
_KV_COMPUTED = "vllm:request_prefill_kv_computed_tokens_sum"
_CONFIG = "vllm:cache_config_info"
_SLEEP = "vllm:engine_sleep_state"
_START = "process_start_time_seconds"

_PLAIN = frozenset(
    name.replace(":", "_")
    for name in (
        *(alias for aliases in _SUMS.values() for alias in aliases),
        *_KV_USED,
        "vllm:gpu_prefix_cache_queries_total",
        _BY_SOURCE,
        _KV_COMPUTED,
        _CONFIG,
        _SLEEP,
        _START,
    )
)
_BUCKETS = frozenset(name.replace(":", "_") for aliases in _HISTOGRAM_NAMES.values() for name in aliases)
IDENTITY_FAMILIES = frozenset(("vllm_cache_config_info", "vllm_num_requests_running"))

_FACTS: Mapping[str, type] = {
    "block_size": int,
    "num_gpu_blocks": int,
    "num_gpu_blocks_override": int,
    "gpu_memory_utilization": float,
    "cache_dtype": str,
    "enable_prefix_caching": bool,
    "kv_cache_memory_bytes": int,
    "kv_cache_size_tokens": int,
    "kv_cache_max_concurrency": float,
    "sliding_window": int,
    "swap_space": float,
    "cpu_offload_gb": float,
}
_CACHING_ON = "unless prefix caching is off"
_CONDITIONS: Mapping[str, str] = {
    "prefix_cache_query_tokens_total": _CACHING_ON,
    "prefix_cache_hit_tokens_total": _CACHING_ON,
    "tpot_seconds": "from 0.11 on",
}
OFFERS: Mapping[str, Offered | Absence] = {
    **{quantity: Offered(names[0], _CONDITIONS.get(quantity)) for quantity, names in _SUMS.items()},
    **{quantity: Offered(names[0], _CONDITIONS.get(quantity)) for quantity, names in _HISTOGRAM_NAMES.items()},
    "generation_live_tokens_total": Absence(
        Offer.NOT_OFFERED, "Not needed: vLLM counts generated tokens while requests run."
    ),
    "prompt_tokens_total": Offered(
        f'{_BY_SOURCE}{{source="local_compute"}}', "from 0.13 on, and before it where prefix caching is off"
    ),
    "kv_used_fraction": Offered(_KV_USED[0]),
    "kv_capacity_tokens": Offered(f"{_CONFIG} kv_cache_size_tokens", "not with the Rust frontend"),
}

_CAPACITY_REASON = "This version of vLLM does not say how many tokens its KV cache holds."
_ABSENT: Mapping[str, str] = {
    "tpot_seconds": "vLLM measures the time per output token of a request from version 0.11 on.",
    "prompt_tokens_total": "Before 0.13 vLLM does not count computed prompt tokens apart from cached ones.",
}


def wanted(*, histograms: bool) -> frozenset[str]:
    """The families of one sample."""
    return _PLAIN | _BUCKETS if histograms else _PLAIN


def is_vllm(exposition: Exposition) -> bool:
    """Whether any series of vLLM is in it."""
    return any(family.startswith("vllm_") for family in exposition.families)


def engine_count(exposition: Exposition) -> int:
    """Data-parallel engines behind this endpoint; 1 where the metrics have no `engine` label."""
    return max(1, len({dict(labels).get("engine") for labels in exposition.series("vllm:num_requests_running")}))


def cache_facts(exposition: Exposition) -> dict[str, str | int | float | bool]:
    """
    The cache configuration that vLLM tells in the labels of `vllm:cache_config_info`, allow-listed.

    `num_gpu_blocks` is the sum over all data-parallel engines, `kv_cache_size_tokens` that of one engine.
    """
    facts: dict[str, str | int | float | bool] = {}
    for labels in exposition.series(_CONFIG):
        for name, text in labels:
            kind = _FACTS.get(name)
            value = _typed(text, kind) if kind else None
            if value is not None:
                facts.setdefault(name, value)
    if "kv_cache_memory_bytes" in facts:
        facts.pop("gpu_memory_utilization", None)  # not in effect when the size of the cache is given
    return facts


def read(exposition: Exposition, *, histograms: bool, rust_frontend: bool) -> EngineReading:
    """All canonical quantities of one body of metrics."""
    readings: dict[str, Reading] = {}
    found: dict[str, Histogram] = {}
    absences = declared_absences(OFFERS)
    shards = engine_count(exposition)
    over = f" (sum over {shards} engines)" if shards > 1 else ""
    for quantity, names in _SUMS.items():
        name = next((name for name in names if exposition.series(name)), None)
        if name is not None:
            note = " (finished requests)" if quantity == "prompt_seconds_total" else ""
            readings[quantity] = Reading(exposition.sum(name), name + over + note)
    used = next((name for name in _KV_USED if exposition.series(name)), None)
    if used is not None:
        mean = f" (mean over {shards} engines)" if shards > 1 else ""
        readings["kv_used_fraction"] = Reading(exposition.mean(used), used + mean)
    _computed_prompt(exposition, readings, over)
    _capacity(exposition, readings, shards)
    _prefix_cache(exposition, readings, absences)
    for quantity, names in _HISTOGRAM_NAMES.items():
        name = next((name for name in names if name.replace(":", "_") in exposition.families), None)
        if name is None:
            continue
        buckets = exposition.histogram(name) if histograms else None
        if buckets is not None:
            found[quantity] = Histogram(buckets.buckets, buckets.sum, name + over)
        elif histograms:
            absences[quantity] = Absence(Offer.UNKNOWN, f"The buckets of {name} could not be read or added up.")
    _fill_absences(exposition, readings, found, absences, rust_frontend)
    state, detail = _state(exposition)
    problems = " ".join(f"{problem[:1].upper()}{problem[1:]}." for problem in exposition.problems[:2])
    start = exposition.value(_START)
    return EngineReading(
        state=state,
        detail=" ".join(filter(None, (detail, problems))) or None,
        readings=readings,
        histograms=found,
        absences=absences,
        restart_marker=None if start is None else repr(start),
    )


def _computed_prompt(exposition: Exposition, readings: dict[str, Reading], over: str) -> None:
    """
    Prompt tokens that were computed: told by source from 0.16 on, at the end of requests from 0.13 on.

    Before that only `prompt_tokens_total - prefix_cache_hits_total` comes near it. That is no counter:
    hits are counted when a request is scheduled and its prompt when its first token comes, so the
    difference falls and rises, which would look like restarts and negative rates. It is not offered.
    """
    if exposition.has(_BY_SOURCE, source="local_compute"):
        value = exposition.sum(_BY_SOURCE, source="local_compute")
        readings["prompt_tokens_total"] = Reading(value, f'{_BY_SOURCE}{{source="local_compute"}}{over}')
        return
    if exposition.series(_KV_COMPUTED):
        readings["prompt_tokens_total"] = Reading(
            exposition.sum(_KV_COMPUTED), f"{_KV_COMPUTED} (approximate: counted when a request ends){over}"
        )
        return
    if cache_facts(exposition).get("enable_prefix_caching") is False and exposition.series("vllm:prompt_tokens_total"):
        readings["prompt_tokens_total"] = Reading(
            exposition.sum("vllm:prompt_tokens_total"), f"vllm:prompt_tokens_total (prefix caching is off){over}"
        )


def _capacity(exposition: Exposition, readings: dict[str, Reading], shards: int) -> None:
    """
    Tokens that the KV caches of all engines hold.

    `kv_cache_size_tokens` is per engine. Before it, `num_gpu_blocks` is the sum over the engines,
    repeated in each series, and block 0 of each engine is never used (engines.md 1.3).
    """
    configs = [dict(labels) for labels in exposition.series(_CONFIG)]
    sizes = [_typed(config.get("kv_cache_size_tokens", ""), int) for config in configs]
    if configs and all(isinstance(size, int) for size in sizes):
        over = f" (sum over {len(sizes)} engines)" if len(sizes) > 1 else ""
        value = float(sum(size for size in sizes if isinstance(size, int)))
        readings["kv_capacity_tokens"] = Reading(value, f"{_CONFIG} kv_cache_size_tokens{over}")
        return
    blocks = _typed(configs[0].get("num_gpu_blocks", ""), int) if configs else None
    block_size = _typed(configs[0].get("block_size", ""), int) if configs else None
    if isinstance(blocks, int) and isinstance(block_size, int) and blocks > len(configs):
        readings["kv_capacity_tokens"] = Reading(
            float((blocks - max(len(configs), shards)) * block_size), f"{_CONFIG} (num_gpu_blocks - 1) x block_size"
        )


def _prefix_cache(exposition: Exposition, readings: dict[str, Reading], absences: dict[str, Absence]) -> None:
    """Where prefix caching is off its counters stay 0: that is "disabled", not "no hits"."""
    if cache_facts(exposition).get("enable_prefix_caching") is not False:
        return
    for quantity in ("prefix_cache_query_tokens_total", "prefix_cache_hit_tokens_total"):
        readings.pop(quantity, None)
        absences[quantity] = Absence(
            Offer.DISABLED, "Prefix caching is switched off.", "Start vLLM with --enable-prefix-caching."
        )


def _fill_absences(
    exposition: Exposition,
    readings: Mapping[str, Reading],
    found: Mapping[str, Histogram],
    absences: dict[str, Absence],
    rust_frontend: bool,
) -> None:
    expected = (*_SUMS, "prompt_tokens_total", "kv_used_fraction", "kv_capacity_tokens", *HISTOGRAMS)
    for quantity in expected:
        names = _HISTOGRAM_NAMES.get(quantity, ())
        offered = any(name.replace(":", "_") in exposition.families for name in names)
        if quantity in readings or quantity in found or quantity in absences or offered:
            continue
        if exposition.partial or exposition.problems:
            absences[quantity] = Absence(Offer.UNKNOWN, "Its part of the answer was cut off or could not be read.")
        elif quantity == "kv_capacity_tokens":
            reason = (
                "vLLM's Rust frontend does not tell its cache configuration." if rust_frontend else _CAPACITY_REASON
            )
            absences[quantity] = Absence(Offer.NOT_OFFERED, reason)
        elif quantity.startswith("prefix_cache") and exposition.series("vllm:gpu_prefix_cache_queries_total"):
            absences[quantity] = Absence(
                Offer.NOT_OFFERED, "This version of vLLM counts blocks, not tokens.", "Update vLLM to 0.9.2 or newer."
            )
        elif quantity in _ABSENT:
            absences[quantity] = Absence(Offer.NOT_OFFERED, _ABSENT[quantity])
        else:
            absences[quantity] = not_found(*_SUMS.get(quantity, names or _KV_USED))


def _state(exposition: Exposition) -> tuple[EngineState, str | None]:
    awake = [value for labels, value in exposition.series(_SLEEP).items() if ("sleep_state", "awake") in labels]
    asleep = sum(1 for value in awake if value == 0.0)
    if not asleep:
        return EngineState.READY, None
    if asleep < len(awake):
        return EngineState.READY, f"{asleep} of {len(awake)} engines are asleep."
    discarded = (exposition.sum(_SLEEP, sleep_state="discard_all") or 0.0) > 0
    how = "its weights are discarded (level 2)" if discarded else "its weights are offloaded to host memory (level 1)"
    return EngineState.SLEEPING, f"vLLM was put to sleep: {how}. It answers no requests until it is woken up."


def _typed(text: str, kind: type) -> str | int | float | bool | None:
    """A label value as what it stands for; None for `None` and for what can't be read."""
    if text in ("", "None"):
        return None
    if kind is bool:
        return {"True": True, "False": False}.get(text)
    if kind is str:
        return text[:100]
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        return None
