"""
Results of `vllm bench serve --save-result`: one object, or one a line with `--append-result`.

Read in vllm/benchmarks/serve.py and lib/endpoint_request_func.py. Its TPOT is ours: (latency - TTFT) / (tokens - 1).
Its "ITL" is the list of gaps between chunks, our ICL. Its throughput is of the whole run, ramp and tail included, and
so are its requests per second and goodput, which keep those names in `details`. Its peak (`max_output_tokens_per_s`)
counts chunks as tokens (vllm#50677) and is not taken. Generated texts are never taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtest.importers.reading import (
    DEFINITIONS,
    IMPORTED,
    MOST_REQUESTS,
    MOST_STAGES,
    File,
    columns,
    failed_share,
    last_part,
    listed,
    number,
    positive,
    seconds,
    text_of,
    whole,
)
from loadtest.statistics import STATISTICS
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestStage
from store.model import Row

SOURCE = "vllm bench serve"
_NEEDED = ("duration", "completed", "total_output_tokens", "output_throughput")
_OURS = {"ttft": "ttft", "tpot": "tpot", "icl": "itl", "e2e": "e2el"}
_KNOWN = frozenset(
    (
        "date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency",
        "duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput rtfx",
        "output_throughput total_token_throughput max_output_tokens_per_s max_concurrent_requests input_lens",
        "output_lens ttfts itls latencies start_times queue_times generated_texts errors",
    )
)


def recognises(document: Any) -> bool:
    """Whether it is one such result."""
    if not isinstance(document, dict) or "total_output_tokens" not in document:
        return False
    return number(document.get("request_throughput", "none")) is not None


def load(documents: Sequence[Mapping[str, Any]], file: File) -> list[Row]:
    """Rows of all results in a file, each a stage. Raises `ImportFailedError`."""
    if len(documents) > MOST_STAGES:
        raise file.fail(f"it holds {len(documents)} results, at most {MOST_STAGES} are taken")
    rows: list[Row] = []
    judgements: list[LoadtestJudgement] = []
    repeats: dict[tuple[Any, ...], int] = {}
    for stage_id, document in enumerate(documents):
        if not recognises(document):
            raise file.fail(f"result {stage_id + 1} is not one of vllm bench serve")
        missing = [name for name in _NEEDED if positive(document.get(name)) is None]
        if missing:
            raise file.fail(f"result {stage_id + 1} has no usable {', '.join(missing)}: is it complete?")
        stage, requests = _stage(document, file, stage_id, repeats)
        rows += [stage, *requests]
        judgements += [
            *_lacks(document, file, stage, requests),
            *failed_share(file, stage.failed, stage.requests, stage_id),
        ]
    judgements += list(_definitions(file))
    trusted = False if any(each.severity == "failed" for each in judgements) else None
    return [file.run(SOURCE, began=None, ended=None, trusted=trusted), *rows, *judgements]


def _stage(
    document: Mapping[str, Any], file: File, stage_id: int, repeats: dict[tuple[Any, ...], int]
) -> tuple[LoadtestStage, list[LoadtestRequest]]:
    rate = positive(document.get("request_rate"))
    concurrency = whole(document.get("max_concurrency"))
    model = last_part(text_of(document.get("model_id")))
    backend = text_of(document.get("backend"))
    label = text_of(document.get("label")) or f"{model or 'unnamed model'} (vllm bench serve)"
    place = (label, rate, concurrency)
    repeats[place] = repeats.get(place, -1) + 1
    completed, failed = whole(document.get("completed")), whole(document.get("failed"))
    sent = whole(document.get("num_prompts"))
    if failed is None and sent is not None and completed is not None:
        failed = max(sent - completed, 0)  # older versions don't write it
    requests = list(_requests(document, file, stage_id))
    metadata = {
        name: text_of(str(value))
        for name, value in list(document.items())[:200]
        if not any(name in names.split() for names in _KNOWN)
        and isinstance(value, str | int | float)
        and not _is_statistic(name)
    }
    stage = file.stage(
        stage_id,
        label=label,
        engine=backend if backend in ("vllm", "tgi", "sglang") else None,
        model_id=model,
        mode="closed" if rate is None else "poisson",
        concurrency=concurrency,
        offered_requests_per_second=rate,
        repeat=repeats[place],
        whole_seconds=positive(document.get("duration")),
        requests=None if completed is None or failed is None else completed + failed,
        succeeded=completed,
        failed=failed,
        input_tokens=positive(document.get("total_input_tokens")),
        output_tokens=positive(document.get("total_output_tokens")),
        whole_output_tokens_per_second=positive(document.get("output_throughput")),
        details={
            "whole_requests_per_second": positive(document.get("request_throughput")),
            "whole_goodput_requests_per_second": positive(document.get("request_goodput")),
            "burstiness": positive(document.get("burstiness")) if rate is not None else None,
            "file_date": text_of(document.get("date")),
            "backend": backend,
            "metadata": metadata or None,
        },
        **_latencies(document, requests),
    )
    return stage, requests


def _latencies(document: Mapping[str, Any], requests: Sequence[LoadtestRequest]) -> dict[str, float | None]:
    """The file's own statistics, and from its requests those that it leaves out."""
    good = [request for request in requests if request.status == "ok"]
    gaps = [positive(gap) for gaps in listed(document.get("itls")) for gap in listed(gaps)] if good else []
    own = {
        "ttft": columns("ttft", (request.ttft_seconds for request in good)),
        "tpot": columns("tpot", (request.tpot_seconds for request in good)),
        "icl": columns("icl", gaps),
        "e2e": columns("e2e", (request.e2e_seconds for request in good)),
    }
    found: dict[str, float | None] = {}
    for name, theirs in _OURS.items():
        for statistic in STATISTICS:
            short = statistic.removesuffix("_seconds")
            told = seconds(document.get(f"{short}_{theirs}_ms"))
            if told is None and short == "p50":
                told = seconds(document.get(f"median_{theirs}_ms"))
            found[f"{name}_{statistic}"] = own[name][f"{name}_{statistic}"] if told is None else told
    return found


def _requests(document: Mapping[str, Any], file: File, stage_id: int) -> Iterator[LoadtestRequest]:
    """Each request, where the file was saved with `--save-detailed`."""
    ttfts, lengths = listed(document.get("ttfts")), listed(document.get("output_lens"))
    if not ttfts:
        return
    if len(ttfts) > MOST_REQUESTS:
        raise file.fail(f"it holds {len(ttfts)} requests, at most {MOST_REQUESTS} are taken")
    begins, errors = listed(document.get("start_times")), listed(document.get("errors"))
    gaps, inputs = listed(document.get("itls")), listed(document.get("input_lens"))
    first = min((value for value in map(number, begins) if value is not None), default=0.0)
    for index, told in enumerate(ttfts):
        between = [gap for gap in map(positive, listed(_at(gaps, index))) if gap is not None]
        error, tokens, ttft = text_of(_at(errors, index)), whole(_at(lengths, index)), positive(told)
        began = number(_at(begins, index))
        sent = None if began is None else began - first
        good = error is None and bool(tokens)
        elapsed = math.fsum(between)
        known: dict[str, Any] = {
            "status": "ok" if good else "error",
            "error": None if good else error or "no token was generated",
            "sent_seconds": sent,
            "input_tokens": whole(_at(inputs, index)),
        }
        if good and ttft is not None:
            known |= {
                "output_tokens": tokens,
                "chunks": len(between) + 1,
                "first_token_seconds": None if sent is None else sent + ttft,
                "last_token_seconds": None if sent is None else sent + ttft + elapsed,
                "ttft_seconds": ttft,
                "tpot_seconds": elapsed / (tokens - 1) if between and tokens and tokens > 1 else None,
                "e2e_seconds": ttft + elapsed,
                "longest_gap_seconds": max(between, default=None),
            }
        yield file.request(stage_id, index, **known)


def _lacks(
    document: Mapping[str, Any], file: File, stage: LoadtestStage, requests: Sequence[LoadtestRequest]
) -> Iterator[LoadtestJudgement]:
    lacking = ["a steady window (its throughput is of the whole run, ramp and tail included)"]
    if stage.e2e_mean_seconds is None:
        lacking.append("E2E latency")
    if not requests:
        lacking.append("single requests")
    lacking += ["prefix-cache hits", "engine counters", "engine version"]
    text = f"The file lacks {', '.join(lacking[:-1])} and {lacking[-1]}. "
    text += "Its time of day is of an unnamed zone, so when it ran is not known."
    yield file.judgement(IMPORTED, "note", text, stage.stage_id)
    if stage.offered_requests_per_second is None and stage.concurrency is None:
        text = "All requests were sent at once, with no limit on how many run: there is no level of concurrency to "
        text += "put it at, and TTFT is mostly time in the engine's queue."
        yield file.judgement("no_level", "note", text, stage.stage_id)
    if stage.offered_requests_per_second is not None and stage.concurrency is not None:
        text = f"At most {stage.concurrency} requests ran at once. Those that were due meanwhile waited in the client, "
        text += "which the file's latencies leave out."
        yield file.judgement("rate_not_kept", "warning", text, stage.stage_id)


def _definitions(file: File) -> Iterator[LoadtestJudgement]:
    text = (
        "Translated from vllm bench serve: its ITL is the gap between chunks, here ICL; its TPOT is as here. Its first "
    )
    text += "token may be an empty chunk or one with a role only, so TTFT may be too small. Its output tokens are the "
    text += "server's count, or the text tokenised again where the server told none; the file does not say which."
    yield file.judgement(DEFINITIONS, "note", text)


def _is_statistic(name: str) -> bool:
    return name.startswith(("mean_", "median_", "std_", "p")) and name.endswith("_ms")


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None
