"""
Results of AIPerf: the summary `profile_export_aiperf.json`, or `profile_export.jsonl` with one request a line.

Read in aiperf's docs/metrics-reference.md and its records of 0.13. Its "inter token latency" is (latency - TTFT) /
(tokens - 1), our TPOT; "inter chunk latency" is our ICL; TTFT is the first non-empty text or reasoning, as here; a
latency ends with the last response. Tokens are those of its own tokenizer and, beside them, those that the server
told. The server's are taken where they are there, because a reply that is tokenised again need not come out as it was
generated (flexible-inference-bench#66); with the records TPOT is made from them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collectors.redaction import redact_url
from loadtest.importers.reading import (
    DEFINITIONS,
    IMPORTED,
    MOST_REQUESTS,
    File,
    columns,
    failed_share,
    last_part,
    listed,
    mapping,
    moment,
    number,
    positive,
    seconds,
    text_of,
    whole,
)
from loadtest.statistics import STATISTICS
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest
from store.model import Row

SOURCE = "aiperf"
_OURS = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "icl": "inter_chunk_latency",
    "e2e": "request_latency",
}
_UNITS = {"ms": 1e-3, "sec": 1.0, "s": 1.0, "us": 1e-6, "ns": 1e-9}  # how it writes a time's unit
_TOKENS_APART = 0.02  # from which the two token counts are said to disagree
_TEXT = (
    "Translated from AIPerf: its inter token latency is TPOT here, its inter chunk latency is ICL. "
    "Its latencies end with the last response, which may come after the last token."
)


def recognises(document: Any) -> bool:
    """Whether it is a summary."""
    if not isinstance(document, dict):
        return False
    return "aiperf_version" in document or (
        "request_latency" in document and "unit" in mapping(document.get("request_throughput"))
    )


def recognises_records(document: Any) -> bool:
    """Whether it is one record of a request."""
    return (
        isinstance(document, dict) and "benchmark_phase" in mapping(document.get("metadata")) and "metrics" in document
    )


def load(document: Mapping[str, Any], file: File) -> list[Row]:
    """Rows of a summary. Raises `ImportFailedError`."""
    if positive(_metric(document, "request_count").get("avg")) is None and not listed(document.get("error_summary")):
        raise file.fail("it is an AIPerf summary without a request count: did the run fail?")
    config = mapping(document.get("input_config"))
    phases = [mapping(phase) for phase in listed(config.get("phases"))]
    phase = next((each for each in phases if each.get("kind", "profiling") == "profiling"), {})
    concurrency, rate = whole(phase.get("concurrency")), positive(phase.get("rate"))
    model = last_part(text_of(mapping(next(iter(_models(config)), None)).get("name")))
    url = next(iter(listed(mapping(config.get("endpoint")).get("urls"))), None)
    failed = sum(whole(mapping(each).get("count")) or 0 for each in listed(document.get("error_summary")))
    succeeded = whole(_average(document, "request_count"))
    mine, theirs = _average(document, "total_osl"), _average(document, "total_usage_completion_tokens")
    mine = mine if mine is not None else _average(document, "total_output_tokens")
    output = theirs if theirs is not None else mine
    given = _average(document, "total_usage_prompt_tokens")
    duration = positive(_average(document, "benchmark_duration"))
    stage = file.stage(
        0,
        url=redact_url(text_of(url) or "file"),
        label=f"{model or 'unnamed model'} (aiperf)",
        model_id=model,
        mode="closed" if rate is None else "constant" if phase.get("type") == "constant" else "poisson",
        concurrency=concurrency,
        offered_requests_per_second=rate,
        whole_seconds=duration,
        requests=None if succeeded is None else succeeded + failed,
        succeeded=succeeded,
        failed=failed,
        input_tokens=given if given is not None else _average(document, "total_isl"),
        output_tokens=output,
        cached_input_tokens=_average(document, "total_usage_prompt_cache_read_tokens"),
        whole_output_tokens_per_second=output / duration if output is not None and duration else None,
        details={
            "whole_requests_per_second": _average(document, "request_throughput"),
            "whole_goodput_requests_per_second": _average(document, "goodput"),
            "mean_concurrency": _average(document, "effective_concurrency"),
            "tokens_by_its_tokenizer": mine,
            "tokens_by_the_server": theirs,
            "load": text_of(phase.get("type")),
            "tool_version": text_of(document.get("aiperf_version")),
            "file_began": text_of(document.get("start_time")),
        },
        **{
            f"{name}_{statistic}": _statistic(document, metric, statistic)
            for name, metric in _OURS.items()
            for statistic in STATISTICS
        },
    )
    lacks = (
        "The file has no steady window (its throughput is of the whole run), no single requests, no engine counters "
    )
    lacks += "and no engine version. Its times of day name no zone, so when it ran is not known."
    judgements = [
        file.judgement(IMPORTED, "note", lacks),
        file.judgement(DEFINITIONS, "note", _TEXT),
        *_tokens_apart(file, mine, theirs, "TPOT is by its own tokenizer, throughput by the server's count."),
        *_cut_short(document, file),
        *_no_level(file, concurrency, rate),
        *failed_share(file, failed, stage.requests, 0),
    ]
    return [file.run(SOURCE, began=None, ended=None, trusted=_trusted(judgements)), stage, *judgements]


def load_records(documents: Sequence[Mapping[str, Any]], file: File) -> list[Row]:
    """Rows of the records of a run, those of its warm-up left out. Raises `ImportFailedError`."""
    if len(documents) > MOST_REQUESTS:
        raise file.fail(f"it holds {len(documents)} requests, at most {MOST_REQUESTS} are taken")
    wrong = next((line for line, each in enumerate(documents, 1) if not recognises_records(each)), None)
    if wrong is not None:
        raise file.fail(f"line {wrong} is not a record of AIPerf")
    measured = [each for each in documents if mapping(each.get("metadata")).get("benchmark_phase") == "profiling"]
    starts = [start for start in (_nanoseconds(each, "request_start_ns") for each in measured) if start is not None]
    ends = [end for end in (_nanoseconds(each, "request_end_ns") for each in measured) if end is not None]
    if not starts or not ends:
        raise file.fail("no record of its profiling phase has a time: did the run fail?")
    first, last = min(starts), max(ends)
    began, ended = moment(first), moment(last)
    requests = [_request(each, file, index, first) for index, each in enumerate(measured)]
    good = [request for request in requests if request.status == "ok"]
    gaps = [
        seconds(gap)
        for each, request in zip(measured, requests, strict=True)
        if request.status == "ok"
        for gap in listed(_record(each, "inter_chunk_latency").get("value"))
    ]
    output = _sum([request.output_tokens for request in good])
    speeds = [1 / request.tpot_seconds for request in good if request.tpot_seconds]
    failed = sum(request.status == "error" for request in requests)
    stage = file.stage(
        0,
        **({"ts": began, "ended": ended} if began is not None and ended is not None else {}),
        label="aiperf",
        whole_seconds=last - first,
        requests=len(requests),
        succeeded=len(good),
        failed=failed,
        cancelled=sum(request.status == "cancelled" for request in requests),
        input_tokens=_sum([request.input_tokens for request in good]),
        output_tokens=output,
        cached_input_tokens=_sum([request.cached_input_tokens for request in good]),
        whole_output_tokens_per_second=output / (last - first) if output is not None and last > first else None,
        user_tokens_per_second=sum(speeds) / len(speeds) if speeds else None,
        **columns("ttft", (request.ttft_seconds for request in good)),
        **columns("tpot", (request.tpot_seconds for request in good)),
        **columns("icl", gaps),
        **columns("e2e", (request.e2e_seconds for request in good)),
    )
    mine = _sum([whole(_record(each, "output_sequence_length").get("value")) for each in measured])
    lacks = (
        "Records say neither model, nor address, nor level of load: import profile_export_aiperf.json for these. They "
    )
    lacks += "have no steady window, no engine counters and no engine version."
    judgements = [
        file.judgement(IMPORTED, "note", lacks),
        file.judgement(DEFINITIONS, "note", _TEXT),
        *_tokens_apart(file, mine, output, "TPOT and throughput are by the server's count."),
        *failed_share(file, failed, len(good) + failed, 0),
    ]
    run = file.run(SOURCE, began=began, ended=ended, trusted=_trusted(judgements))
    return [run, stage, *requests, *judgements]


def _request(each: Mapping[str, Any], file: File, index: int, first: float) -> LoadtestRequest:
    metadata = mapping(each.get("metadata"))
    start, end, due = (_nanoseconds(each, f"{name}_ns") for name in ("request_start", "request_end", "credit_issued"))
    failure = mapping(each.get("error"))
    status = "cancelled" if metadata.get("was_cancelled") is True else "error" if failure else "ok"
    sent = None if start is None else start - first
    usage = whole(_record(each, "usage_completion_tokens").get("value"))
    tokens = usage if usage is not None else whole(_record(each, "output_sequence_length").get("value"))
    given = whole(_record(each, "usage_prompt_tokens").get("value"))
    ttft = seconds(_record(each, "time_to_first_token").get("value"))
    latency = seconds(_record(each, "request_latency").get("value"))
    visible = seconds(_record(each, "time_to_first_output_token").get("value"))
    gaps = [gap for gap in map(seconds, listed(_record(each, "inter_chunk_latency").get("value"))) if gap is not None]
    known: dict[str, Any] = {
        "status": status,
        "error": (text_of(failure.get("message")) or "AIPerf tells no reason") if status == "error" else None,
        "scheduled_seconds": None if due is None else due - first,
        "sent_seconds": sent,
        "done_seconds": None if end is None else end - first,
    }
    if (ts := moment(start)) is not None:
        known["ts"] = ts
    if status != "ok":
        return file.request(0, index, **known)
    decode = latency - ttft if latency is not None and ttft is not None else None
    return file.request(
        0,
        index,
        **known,
        first_token_seconds=None if sent is None or ttft is None else sent + ttft,
        first_visible_seconds=None if sent is None or visible is None else sent + visible,
        last_token_seconds=None if sent is None or latency is None else sent + latency,
        input_tokens=given if given is not None else whole(_record(each, "input_sequence_length").get("value")),
        cached_input_tokens=whole(_record(each, "usage_prompt_cache_read_tokens").get("value")),
        output_tokens=tokens,
        chunks=len(gaps) + 1 if gaps else None,
        ttft_seconds=ttft,
        tpot_seconds=decode / (tokens - 1) if decode and tokens is not None and tokens > 1 else None,
        e2e_seconds=latency,
        longest_gap_seconds=max(gaps, default=None),
    )


def _tokens_apart(file: File, mine: float | None, theirs: float | None, what: str) -> Iterator[LoadtestJudgement]:
    if mine and theirs and abs(mine - theirs) > _TOKENS_APART * theirs:
        text = f"AIPerf's tokenizer counted {mine:.0f} output tokens, the server {theirs:.0f} "
        text += f"({mine / theirs - 1:+.1%}). {what}".replace("%", " %")
        yield file.judgement("tokens_disagree", "warning", text, 0)


def _cut_short(document: Mapping[str, Any], file: File) -> Iterator[LoadtestJudgement]:
    if document.get("was_cancelled") is True:
        yield file.judgement("stage_cut_short", "warning", "The run was cancelled before its end.", 0)


def _no_level(file: File, concurrency: int | None, rate: float | None) -> Iterator[LoadtestJudgement]:
    if concurrency is None and rate is None:
        text = "The file tells neither concurrency nor rate, so the stage has no place on a curve."
        yield file.judgement("no_level", "note", text, 0)


def _trusted(judgements: Sequence[LoadtestJudgement]) -> bool | None:
    return False if any(each.severity == "failed" for each in judgements) else None


def _models(config: Mapping[str, Any]) -> list[Any]:
    return listed(mapping(config.get("models")).get("items"))


def _metric(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping(document.get(name))


def _average(document: Mapping[str, Any], name: str) -> float | None:
    return positive(_metric(document, name).get("avg"))


def _statistic(document: Mapping[str, Any], name: str, statistic: str) -> float | None:
    metric = _metric(document, name)
    short = statistic.removesuffix("_seconds")
    told = positive(metric.get("avg" if short == "mean" else short))
    factor = _UNITS.get(str(metric.get("unit")))
    return None if told is None or factor is None else told * factor


def _record(each: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping(mapping(each.get("metrics")).get(name))


def _nanoseconds(each: Mapping[str, Any], name: str) -> float | None:
    """Unix seconds from a field of the metadata in nanoseconds."""
    told = number(mapping(each.get("metadata")).get(name))
    return None if told is None else told / 1e9


def _sum(values: Sequence[int | None]) -> float | None:
    return None if not values or None in values else float(sum(value or 0 for value in values))
