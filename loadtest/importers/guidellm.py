"""
Results of guidellm, its JSON of version 2 (guidellm 0.6 to 0.8): one benchmark a stage.

Read in guidellm's schemas (benchmark/schemas, schemas/request_stats.py). Its "ITL" of a request is
(last token - first token) / (tokens - 1): our TPOT. Its "TPOT" is latency / tokens, prefill included: a figure of
another kind, which stays behind under its own name in `details`. Its statistics of ITL weigh each request by its
tokens and its percentiles take the next greater value; where the file holds every request, all figures are made anew
from these by the definitions here. Prompts and answers, which it holds too, are never taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collectors.redaction import redact_url
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
    mapping,
    moment,
    number,
    positive,
    seconds,
    text_of,
    whole,
)
from loadtest.statistics import STATISTICS
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestStage
from store.model import Row

SOURCE = "guidellm"
_STATUSES = {"successful": "ok", "errored": "error", "incomplete": "cancelled"}
_MODES = {"constant": "constant", "poisson": "poisson", "concurrent": "closed", "synchronous": "closed"}


def recognises(document: Any) -> bool:
    """Whether it is such a report."""
    return (
        isinstance(document, dict) and "benchmarks" in document and "guidellm_version" in str(document.get("metadata"))
    )


def load(document: Mapping[str, Any], file: File) -> list[Row]:
    """Rows of all benchmarks of a report, each a stage. Raises `ImportFailedError`."""
    version = mapping(document.get("metadata")).get("version")
    if version != 2:
        raise file.fail(f"it is a guidellm report of version {version}; version 2 can be read (guidellm 0.6 and later)")
    benchmarks = [mapping(each) for each in listed(document.get("benchmarks"))]
    if not benchmarks:
        raise file.fail("it is a guidellm report without a benchmark: did the run fail?")
    if len(benchmarks) > MOST_STAGES:
        raise file.fail(f"it holds {len(benchmarks)} benchmarks, at most {MOST_STAGES} are taken")
    rows: list[Row] = []
    judgements: list[LoadtestJudgement] = []
    stages: list[LoadtestStage] = []
    for stage_id, benchmark in enumerate(benchmarks):
        if not mapping(benchmark.get("metrics")):
            raise file.fail(f"benchmark {stage_id + 1} has no metrics: is it complete?")
        requests = list(_requests(benchmark, file, stage_id))
        stage, judged = _stage(benchmark, file, stage_id, requests)
        stages.append(stage)
        rows += [stage, *requests]
        judgements += judged
    text = "Translated from guidellm: its ITL is TPOT here. Its own TPOT has the time to the first token in it and is "
    text += "not the TPOT here. E2E ends with the last token, its request latency with the end of the stream."
    judgements.append(file.judgement(DEFINITIONS, "note", text))
    trusted = False if any(each.severity == "failed" for each in judgements) else None
    began = min((stage.ts for stage in stages if stage.window_begin is not None), default=None)
    ended = max((stage.ended for stage in stages if stage.window_begin is not None), default=None)
    return [file.run(SOURCE, began=began, ended=ended, trusted=trusted), *rows, *judgements]


def _stage(
    benchmark: Mapping[str, Any], file: File, stage_id: int, requests: Sequence[LoadtestRequest]
) -> tuple[LoadtestStage, list[LoadtestJudgement]]:
    config, metrics = mapping(benchmark.get("config")), mapping(benchmark.get("metrics"))
    strategy, backend = mapping(config.get("strategy")), mapping(config.get("backend"))
    kind = str(strategy.get("type_"))
    model = last_part(text_of(backend.get("model")))
    totals = mapping(metrics.get("request_totals"))
    counts = {status: whole(totals.get(name)) for name, status in _STATUSES.items()}
    complete = counts["ok"] is not None and sum(request.status == "ok" for request in requests) == counts["ok"]
    begin, end = moment(benchmark.get("start_time")), moment(benchmark.get("end_time"))
    duration = positive(benchmark.get("duration"))
    output, given = (_of(metrics, name, "total_sum") for name in ("output_token_count", "prompt_token_count"))
    cut = any(positive(benchmark.get(f"{part}_duration")) for part in ("warmup", "cooldown"))
    rate = output / duration if output is not None and duration else None
    completed = counts["ok"] / duration if counts["ok"] is not None and duration else None
    if complete:
        good = [request for request in requests if request.status == "ok"]
        latencies = {
            name: value
            for measure in ("ttft", "tpot", "e2e")
            for name, value in columns(measure, (getattr(r, f"{measure}_seconds") for r in good)).items()
        }
        cached = [request.cached_input_tokens for request in good if request.cached_input_tokens is not None]
        speeds = [1 / request.tpot_seconds for request in good if request.tpot_seconds]
    else:
        latencies, cached, speeds = _own_statistics(metrics), [], []
    sent = [count for count in counts.values() if count is not None]
    streams = whole(strategy.get("streams")) or whole(strategy.get("max_concurrency"))
    stage = file.stage(
        stage_id,
        **({"ts": begin, "ended": end} if begin is not None and end is not None else {}),
        url=redact_url(text_of(backend.get("target")) or "file"),
        label=f"{model or 'unnamed model'} (guidellm)",
        model_id=model,
        mode=_MODES.get(kind, "closed"),
        concurrency=1 if kind == "synchronous" else streams if kind == "concurrent" else None,
        offered_requests_per_second=positive(strategy.get("rate")) if kind in ("constant", "poisson") else None,
        window_begin=begin,
        window_end=end,
        window_seconds=duration if cut else None,
        whole_seconds=None if cut else duration,
        requests=sum(sent) if sent else None,
        succeeded=counts["ok"],
        failed=counts["error"],
        cancelled=counts["cancelled"],
        input_tokens=given,
        output_tokens=output,
        cached_input_tokens=float(sum(cached)) if cached else None,
        output_tokens_per_second=rate if cut else None,
        whole_output_tokens_per_second=None if cut else rate,
        requests_per_second=completed if cut else None,
        user_tokens_per_second=sum(speeds) / len(speeds) if speeds else None,
        tokens_per_chunk=_of(metrics, "output_tokens_per_iteration", "mean"),
        details={
            "strategy": text_of(kind),
            "whole_requests_per_second": None if cut else completed,
            "mean_concurrency": _of(metrics, "request_concurrency", "mean"),
            "guidellm_tpot_mean_seconds": seconds(_of(metrics, "time_per_output_token_ms", "mean")),
            "ttfv_p50_seconds": seconds(_of(metrics, "time_to_first_output_token_ms", "median")),
            "warmup_seconds": positive(benchmark.get("warmup_duration")),
            "cooldown_seconds": positive(benchmark.get("cooldown_duration")),
        },
        **latencies,
    )
    return stage, list(_judged(file, stage, kind, complete=complete, cut=cut))


def _own_statistics(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Its own statistics, where the file does not hold every request."""
    found: dict[str, float | None] = {}
    for name, theirs, milliseconds in (
        ("ttft", "time_to_first_token_ms", True),
        ("tpot", "inter_token_latency_ms", True),
        ("e2e", "request_latency", False),
    ):
        for statistic in STATISTICS:
            told = _of(metrics, theirs, statistic.removesuffix("_seconds"))
            found[f"{name}_{statistic}"] = seconds(told) if milliseconds else told
    return found


def _of(metrics: Mapping[str, Any], name: str, statistic: str) -> float | None:
    """A statistic of a metric over the requests that succeeded; None where no request has it."""
    found = mapping(mapping(metrics.get(name)).get("successful"))
    if not positive(found.get("count")):
        return None
    return positive(mapping(found.get("percentiles")).get(statistic, found.get(statistic)))


def _requests(benchmark: Mapping[str, Any], file: File, stage_id: int) -> Iterator[LoadtestRequest]:
    held = mapping(benchmark.get("requests"))
    begin = number(benchmark.get("start_time")) or 0.0
    index = 0
    for name, status in _STATUSES.items():
        for each in map(mapping, listed(held.get(name))):
            if index >= MOST_REQUESTS:
                raise file.fail(f"it holds more than {MOST_REQUESTS} requests")
            yield file.request(stage_id, index, **_request(each, status, begin))
            index += 1


def _request(each: Mapping[str, Any], status: str, begin: float) -> dict[str, Any]:
    info = mapping(each.get("info"))
    timings = mapping(info.get("timings"))

    def at(name: str) -> float | None:
        found = number(timings.get(name))
        return None if found is None else found - begin

    sent, first, last = at("request_start"), at("first_token_iteration"), at("last_token_iteration")
    scheduled = at("targeted_start")
    tokens, chunks = whole(each.get("output_tokens")), whole(timings.get("token_iterations"))
    ts = moment(timings.get("request_start"))
    known: dict[str, Any] = {} if ts is None else {"ts": ts}
    known |= {
        "status": status,
        "error": text_of(info.get("error")) or (None if status != "error" else "guidellm tells no reason"),
        "scheduled_seconds": scheduled,
        "sent_seconds": sent,
        "first_data_seconds": at("first_request_iteration"),
        "done_seconds": at("request_end"),
        "input_tokens": whole(each.get("prompt_tokens")),
        "cached_input_tokens": whole(each.get("cached_tokens")),
    }
    if first is None or last is None or sent is None:
        return known
    many = tokens is not None and tokens > 1 and chunks is not None and chunks > 1
    return known | {
        "first_token_seconds": first,
        "first_visible_seconds": at("first_output_token_iteration"),
        "last_token_seconds": last,
        "output_tokens": tokens,
        "chunks": chunks,
        "ttft_seconds": first - sent,
        "tpot_seconds": (last - first) / (tokens - 1) if many and tokens is not None else None,
        "e2e_seconds": last - sent,
        "from_schedule_seconds": None if scheduled is None else last - scheduled,
    }


def _judged(file: File, stage: LoadtestStage, kind: str, *, complete: bool, cut: bool) -> Iterator[LoadtestJudgement]:
    window = "Its window leaves warm-up and cool-down out as it was told to, which need not be where load was steady"
    if not cut:
        window = "It has no steady window (its throughput is of the whole run, ramp and tail included)"
    text = f"{window}. It has no gaps between chunks, no engine counters and no engine version."
    yield file.judgement(IMPORTED, "note", text, stage.stage_id)
    if not complete:
        text = (
            "The file does not hold every request, so latencies are guidellm's own statistics: TPOT weighs requests by "
        )
        text += "their tokens, E2E ends with the stream and not with the last token."
        yield file.judgement("own_statistics", "note", text, stage.stage_id)
    if stage.concurrency is None and stage.offered_requests_per_second is None:
        text = f"Its strategy {kind!r} keeps no level of concurrency or rate, so the stage has no place on a curve."
        yield file.judgement("no_level", "note", text, stage.stage_id)
    if stage.cached_input_tokens and stage.input_tokens and stage.cached_input_tokens > 0.02 * stage.input_tokens:
        part = stage.cached_input_tokens / stage.input_tokens
        text = f"{part:.0%} of the prompt tokens came from the prefix cache, as the answers say.".replace("%", " %")
        yield file.judgement("prefix_cache_hits", "failed" if part > 0.2 else "warning", text, stage.stage_id)
    ended = (stage.succeeded or 0) + (stage.failed or 0)
    yield from failed_share(file, stage.failed, ended, stage.stage_id)
