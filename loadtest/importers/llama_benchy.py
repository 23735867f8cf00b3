"""
Results of llama-benchy (`--format json`): one stage for each prompt, reply, depth and concurrency.

Read in llama_benchy/results.py (0.4.0). Its "tg" speed of a request is (tokens - tokens of the first chunk) / (last -
first), one over our TPOT; the total of "tg" leaves the time to the first token out, so it is the speed of decoding and
not throughput, and keeps that name in `details`. `e2e_ttft` is our TTFT. Its `ttfr` is the first data of any kind, a
chunk with a role included. Its peaks are those of one second and are not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.importers.reading import (
    DEFINITIONS,
    IMPORTED,
    MOST_STAGES,
    File,
    columns,
    iso_moment,
    last_part,
    listed,
    mapping,
    positive,
    seconds,
    text_of,
    whole,
)
from store.model import Row

SOURCE = "llama-benchy"


def recognises(document: Any) -> bool:
    """Whether it is such a report."""
    return isinstance(document, dict) and "latency_mode" in document and "benchmarks" in document


def load(document: Mapping[str, Any], file: File) -> list[Row]:
    """Rows of a report. Raises `ImportFailedError`."""
    benchmarks = [mapping(each) for each in listed(document.get("benchmarks"))]
    if not benchmarks:
        raise file.fail("it is a llama-benchy report without a benchmark: did the run fail?")
    if len(benchmarks) > MOST_STAGES:
        raise file.fail(f"it holds {len(benchmarks)} benchmarks, at most {MOST_STAGES} are taken")
    ended = iso_moment(document.get("timestamp"))
    model = last_part(text_of(document.get("model")))
    rows: list[Row] = []
    for stage_id, benchmark in enumerate(benchmarks):
        concurrency = whole(benchmark.get("concurrency"))
        if concurrency is None:
            raise file.fail(f"benchmark {stage_id + 1} has no concurrency: is it complete?")
        rows.append(_stage(benchmark, document, file, stage_id, concurrency, model))
    lacks = "The file has no throughput over whole requests (its speeds leave either prefill or decode out), no E2E "
    lacks += "latency, no gaps between chunks, no single requests, no counts of what failed, no engine counters and no "
    lacks += "engine version."
    shape = "Runs of one kind are one stage: the file does not keep them apart for latencies, so there are no repeats."
    text = "Translated from llama-benchy: its e2e_ttft is TTFT, one over its tg speed of a request is TPOT."
    return [
        file.run(SOURCE, began=None, ended=ended, trusted=None),
        *rows,
        file.judgement(IMPORTED, "note", lacks),
        file.judgement(DEFINITIONS, "note", f"{text} {shape}"),
    ]


def _stage(
    benchmark: Mapping[str, Any],
    document: Mapping[str, Any],
    file: File,
    stage_id: int,
    concurrency: int,
    model: str | None,
) -> Row:
    prompt, reply, depth = (whole(benchmark.get(f"{name}_size")) for name in ("prompt", "response", "context"))
    phase = "context" if benchmark.get("is_context_prefill_phase") is True else None
    speeds = _values(benchmark, "tg_req_throughput")
    ttfts = _values(benchmark, "e2e_ttft")
    shape = f"pp{prompt} tg{reply}" + (f" @ d{depth}" if depth else "") + (" context prefill" if phase else "")
    return file.stage(
        stage_id,
        label=f"{model or 'unnamed model'} {shape} (llama-benchy)",
        model_id=model,
        concurrency=concurrency,
        succeeded=len(ttfts) or None,
        user_tokens_per_second=sum(speeds) / len(speeds) if speeds else None,
        **columns("ttft", (value / 1000 for value in ttfts)),
        **columns("tpot", (1 / speed for speed in speeds if speed > 0)),
        details={
            "asked_input_tokens": prompt,
            "asked_output_tokens": reply,
            "context_tokens": depth,
            "phase": phase,
            "decode_tokens_per_second": _mean(benchmark, "tg_throughput"),
            "prefill_tokens_per_second": _mean(benchmark, "pp_throughput"),
            "first_data_mean_seconds": seconds(_mean(benchmark, "ttfr")),
            "latency_mode": text_of(document.get("latency_mode")),
            "latency_seconds": seconds(document.get("latency_ms")),
            "prefix_caching": document.get("prefix_caching_enabled") is True,
            "tool_version": text_of(document.get("version")),
        },
    )


def _values(benchmark: Mapping[str, Any], name: str) -> list[float]:
    values = listed(mapping(benchmark.get(name)).get("values"))
    return [value for value in map(positive, values) if value is not None]


def _mean(benchmark: Mapping[str, Any], name: str) -> float | None:
    return positive(mapping(benchmark.get(name)).get("mean"))
