"""
From llama-server's `/metrics`, `/slots` and `/props` to the canonical quantities.

The server prints its numbers with 6 significant digits, counts generated tokens only when a
request ends, and has no KV cache metric; what stands in for these is said in each source text.
Its gauges `prompt_tokens_seconds` and `predicted_tokens_seconds` are never used: they mean the
window since anybody's previous scrape, which every scrape begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.engines.answers import count_of, declared_absences, not_found
from collectors.engines.base import Absence, Endpoint, Offered, Reading
from collectors.engines.commandline import Options
from collectors.exposition import Exposition
from store.model import QUANTITIES, Offer

_P = "llamacpp:"
_VALUES: Mapping[str, str] = {
    "generation_tokens_total": _P + "tokens_predicted_total",
    "prompt_tokens_total": _P + "prompt_tokens_total",
    "prefix_cache_hit_tokens_total": _P + "prompt_tokens_cached_total",
    "generation_seconds_total": _P + "tokens_predicted_seconds_total",
    "prompt_seconds_total": _P + "prompt_seconds_total",
    "requests_running": _P + "requests_processing",
    "requests_waiting": _P + "requests_deferred",
    "kv_used_fraction": _P + "kv_cache_usage_ratio",
}
_DECODES = _P + "n_decode_total"
_BUSY = _P + "n_busy_slots_per_decode"
_DRAFTS = _P + "spec_decode_num_drafts_total"
WANTED = frozenset(name.replace(":", "_") for name in (*_VALUES.values(), _DECODES, _BUSY, _DRAFTS))

# Numbers from here on are printed in steps of 10 and more (server-task.cpp: std::stringstream, 6 digits).
_DIGITS_FROM = 1e6
# From here on the product of two rounded numbers is off by up to 50 tokens and more: no live rate any longer.
_LIVE_UP_TO = 1e7

_UPDATE_2026_08 = "Update llama.cpp to a build of August 2026 or newer."
_NO_HISTOGRAM = "llama.cpp keeps no latency histograms; percentiles come from a load test."
_NEVER: Mapping[str, str] = {
    "requests_finished_total": "llama.cpp does not count requests.",
    "preemptions_total": "llama.cpp does not preempt requests.",
    "ttft_seconds": _NO_HISTOGRAM,
    "e2e_seconds": _NO_HISTOGRAM,
    "queue_seconds": _NO_HISTOGRAM,
    "itl_seconds": "llama.cpp keeps no latency histograms; the mean is generation time per generated token.",
    "tpot_seconds": "llama.cpp keeps no latency histograms; the mean is generation time per generated token.",
}
_CACHED_SINCE = "with --metrics, from August 2026 on"
_SLOTS = "with /slots, which is on since August 2025"
_BOTH = f"{_P}prompt_tokens_total + {_P}prompt_tokens_cached_total"
_USED = "/slots n_prompt_tokens of processing slots / KV capacity (estimated)"
OFFERS: Mapping[str, Offered | Absence] = {
    **{quantity: Offered(name, "with --metrics") for quantity, name in _VALUES.items()},
    **{quantity: Absence(Offer.NOT_OFFERED, reason) for quantity, reason in _NEVER.items()},
    "generation_tokens_total": Offered(_VALUES["generation_tokens_total"], "with --metrics; moves when a request ends"),
    "generation_live_tokens_total": Offered(
        f"{_DECODES} x {_BUSY} (slot-decodes)", "with --metrics; not with speculative decoding"
    ),
    "prefix_cache_hit_tokens_total": Offered(_VALUES["prefix_cache_hit_tokens_total"], _CACHED_SINCE),
    "prefix_cache_query_tokens_total": Offered(_BOTH, _CACHED_SINCE),
    "prompt_with_cached_tokens_total": Offered(_BOTH, _CACHED_SINCE),
    "requests_running": Offered(_VALUES["requests_running"], "with --metrics, else from /slots"),
    "kv_used_fraction": Offered(_USED, _SLOTS),
    "kv_capacity_tokens": Offered("/slots n_ctx", f"{_SLOTS}, where the command line can be seen"),
}
_CACHED = ("prefix_cache_hit_tokens_total", "prefix_cache_query_tokens_total", "prompt_with_cached_tokens_total")


@dataclass(frozen=True, slots=True)
class Slots:
    """What is taken from `/slots`: counts only, never a prompt or a parameter."""

    count: int
    context_tokens: int | None  # per slot
    processing: int
    speculative: bool
    processing_tokens: int | None  # prompt and generated tokens in the processing slots; None: not told


def slots_of(document: Any) -> Slots | None:
    """The counts within a `/slots` answer; None when it is none."""
    if not isinstance(document, list) or not document or not all(isinstance(slot, dict) for slot in document):
        return None
    busy = [slot for slot in document if slot.get("is_processing") is True]
    tokens = [slot.get("n_prompt_tokens") for slot in busy]
    known = [count for count in tokens if isinstance(count, int)]
    return Slots(
        count=len(document),
        context_tokens=count_of(document[0].get("n_ctx")),
        processing=len(busy),
        speculative=any(slot.get("speculative") is True for slot in document),
        processing_tokens=sum(known) if len(known) == len(tokens) else None,
    )


def unified_cache(options: Options, environment: Mapping[str, str]) -> bool:
    """
    Whether all slots share one KV cache, by the command line of the server (engines.md 2.9).

    `--kv-unified` and `--no-kv-unified` decide; without them the cache is shared when the number of
    slots is left to the server (`--parallel` absent or negative).
    """
    if options.has("--no-kv-unified", "-no-kvu"):
        return False
    if options.has("--kv-unified", "-kvu"):
        return True
    switch = environment.get("LLAMA_ARG_KV_UNIFIED", "").lower()
    if switch:
        return switch in ("1", "true", "on", "enabled")
    parallel = options.text("--parallel", "-np") or environment.get("LLAMA_ARG_N_PARALLEL")
    return parallel is None or parallel.startswith("-")


def capacity(
    slots: int | None, context_tokens: int | None, options: Options | None, endpoint: Endpoint, origin: str
) -> Reading | Absence:
    """
    Tokens the KV cache holds, from slots, context per slot and the command line (None: not visible).

    A per-slot context is capped at the model's training context, so a larger shared cache is under-reported.
    """
    if slots is None or context_tokens is None:
        return Absence(Offer.UNKNOWN, "The number of slots and their context length could not be read.")
    if slots == 1:
        return Reading(float(context_tokens), f"{origin} n_ctx of the only slot")
    if options is None:
        return Absence(
            Offer.UNKNOWN,
            "Whether the slots share one KV cache is told only by the server's command line, which can't be seen.",
            "Run the collector on the engine's host, as a user who can see its process.",
        )
    per_slot = options.integer("--kv-unified-per-slot")
    if per_slot is not None and per_slot > 0:
        return Reading(float(slots * per_slot), f"{origin} slots x --kv-unified-per-slot")
    if unified_cache(options, endpoint.process_environment):
        return Reading(float(context_tokens), f"{origin} n_ctx (one cache shared by all slots)")
    return Reading(float(slots * context_tokens), f"{origin} total_slots x n_ctx (each slot has its own cache)")


def from_metrics(
    exposition: Exposition, slots: Slots | None, readings: dict[str, Reading], absences: dict[str, Absence]
) -> None:
    """Add what `/metrics` offers."""
    for quantity, name in _VALUES.items():
        if exposition.series(name):
            readings[quantity] = _reading(exposition.value(name), name)
    prompt, cached = readings.get("prompt_tokens_total"), readings.get("prefix_cache_hit_tokens_total")
    if prompt is not None and cached is not None:
        both = None if prompt.value is None or cached.value is None else prompt.value + cached.value
        total = _reading(both, _BOTH)
        readings["prompt_with_cached_tokens_total"] = readings["prefix_cache_query_tokens_total"] = total
    live = _live_tokens(exposition, slots)
    if isinstance(live, Reading):
        readings["generation_live_tokens_total"] = live
    else:
        absences["generation_live_tokens_total"] = live


def _live_tokens(exposition: Exposition, slots: Slots | None) -> Reading | Absence:
    """
    Slot-decodes: `n_decode_total` x `n_busy_slots_per_decode`, the integer that the server keeps as
    `n_busy_slots` (engines.md 2.2). It moves with every batch; a prompt longer than one batch adds its
    further batches, and with speculative decoding one slot-decode may bring several tokens.
    """
    if (slots is not None and slots.speculative) or (exposition.value(_DRAFTS) or 0) > 0:
        return Absence(
            Offer.NOT_OFFERED,
            "With speculative decoding one decode brings several tokens, so decodes don't count them.",
        )
    if not exposition.series(_DECODES) or not exposition.series(_BUSY):
        return Absence(Offer.NOT_OFFERED, "This build of llama.cpp does not count decodes.", "Update llama.cpp.")
    decodes, busy = exposition.value(_DECODES), exposition.value(_BUSY)
    source = f"{_DECODES} x {_BUSY} (slot-decodes)"
    if decodes == 0:
        return Reading(0.0, source)  # builds before #11915 print the mean of nothing as -nan
    if decodes is None or busy is None:
        return Reading(None, source)
    tokens = decodes * busy
    if tokens >= _LIVE_UP_TO:
        return Absence(
            Offer.NOT_OFFERED,
            "After 10 million slot-decodes the server's 6 significant digits are too coarse for a live rate.",
            "Restart the server when it is idle to count from 0 again.",
        )
    return _reading(float(round(tokens)), source)


def from_slots(
    slots: Slots, pool: Reading | Absence, readings: dict[str, Reading], absences: dict[str, Absence]
) -> None:
    """Add what `/slots` offers, for what `/metrics` did not tell."""
    readings.setdefault("requests_running", Reading(float(slots.processing), "/slots is_processing"))
    if "kv_used_fraction" in readings:
        return
    if slots.processing_tokens is None:
        absences["kv_used_fraction"] = Absence(
            Offer.NOT_OFFERED, "This build's /slots does not say how many tokens a slot holds.", "Update llama.cpp."
        )
    else:
        used(slots.processing_tokens, pool, readings, absences)


def used(
    processing_tokens: int, pool: Reading | Absence, readings: dict[str, Reading], absences: dict[str, Absence]
) -> None:
    """Add the estimated share of the KV cache that processing slots hold."""
    if isinstance(pool, Absence):
        absences["kv_used_fraction"] = pool
    elif pool.value and processing_tokens <= pool.value:
        readings["kv_used_fraction"] = Reading(processing_tokens / pool.value, _USED)
    else:
        absences["kv_used_fraction"] = Absence(
            Offer.UNKNOWN, "The slots hold more tokens than the capacity that was worked out for the KV cache."
        )


def fill_absences(
    readings: Mapping[str, Reading], absences: dict[str, Absence], rest: Absence | None, exposition: Exposition | None
) -> None:
    """Give every quantity that is missing its reason; `rest` is the one of what only `/metrics` tells."""
    never = declared_absences(OFFERS)
    for quantity in (quantity.name for quantity in QUANTITIES):
        if quantity in readings or quantity in absences:
            continue
        if quantity in never:
            absences[quantity] = never[quantity]
        elif rest is not None:
            absences[quantity] = rest
        elif exposition is not None and exposition.problems:
            absences[quantity] = Absence(Offer.UNKNOWN, "Its part of the answer was cut off or could not be read.")
        elif quantity in _CACHED:
            absences[quantity] = Absence(
                Offer.NOT_OFFERED, "This build of llama.cpp does not count cached prompt tokens.", _UPDATE_2026_08
            )
        else:
            absences[quantity] = not_found(_VALUES[quantity])


def _reading(value: float | None, source: str) -> Reading:
    coarse = value is not None and value >= _DIGITS_FROM
    return Reading(value, f"{source} (6 significant digits)" if coarse else source)
