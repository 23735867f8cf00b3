"""
A run as one JSON document, and what two of its endpoints say of each other: for the command line and whoever reads it.

Names and units are those of `store.loadtest_rows`; a figure that was not measurable is null and never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import orjson

from comparison.crossover import Crossover, crossover
from comparison.curves import Measure, curve_of
from loadtest.judgement import untrusted_stages
from loadtest.records import RunEnded
from loadtest.timing import Judgement, Severity
from store.loadtest_rows import LoadtestJudgement, LoadtestStage

_PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
# ICL is the time between chunks. Where a chunk is a token, on average to within this, it is also that between tokens.
_CHUNK_IS_TOKEN = 0.01
_SEVERITIES: dict[str, Severity] = {"ok": "ok", "note": "note", "warning": "warning"}


def json_document(
    run_id: str,
    stages: Sequence[LoadtestStage],
    judgements: Sequence[LoadtestJudgement],
    ended: RunEnded | None,
    not_judged: str | None,
) -> str:
    """`document` as text."""
    return orjson.dumps(document(run_id, stages, judgements, ended, not_judged), option=orjson.OPT_INDENT_2).decode()


def document(
    run_id: str,
    stages: Sequence[LoadtestStage],
    judgements: Sequence[LoadtestJudgement],
    ended: RunEnded | None,
    not_judged: str | None,
) -> dict[str, Any]:
    """
    The JSON contract of `loadtest run`.

    `itl_seconds` is null where a chunk may hold several tokens; the gaps between chunks are `icl_seconds`. Of an open
    loop `concurrency` is the most that were in flight. `trusted` says for each stage and for the run whether it may
    enter a comparison. `others_not_judged`: why what else was at work is not known; null: it is in `judgement`.
    """
    doubtful = untrusted_stages(_judgements(judgements), [stage.stage_id for stage in stages])
    saturated = [each for each in judgements if each.code == "client_saturated" and each.severity != "ok"]
    return {
        "run_id": run_id,
        "state": None if ended is None else ended.state,
        "trusted": all(each.severity != "failed" for each in judgements),
        "stages": [_stage(stage, trusted=stage.stage_id not in doubtful) for stage in stages],
        "client": {
            "saturated": any(each.severity == "failed" for each in saturated),
            "reasons": list(dict.fromkeys(each.text for each in saturated)),
            "figures": None if ended is None or ended.client is None else dict(ended.client),
        },
        "judgement": [
            {"code": each.code, "severity": each.severity, "text": each.text, "stage_id": each.stage_id}
            for each in judgements
        ],
        "others_not_judged": not_judged,
        "crossover": [
            {
                "first": first,
                "second": second,
                "kind": found.kind,
                "between": [[each.after, each.by] for each in found.crossings],
                "sentence": found.sentence,
                "left_out": list(found.left_out),
            }
            for first, second, found in crossovers(stages, judgements)
        ],
    }


def crossovers(
    stages: Sequence[LoadtestStage], judgements: Sequence[LoadtestJudgement]
) -> list[tuple[str, str, Crossover]]:
    """Each two endpoints of a run and where one overtakes the other, by throughput, from its trusted stages."""
    doubtful = untrusted_stages(_judgements(judgements), [stage.stage_id for stage in stages])
    closed = all(stage.mode == "closed" for stage in stages)
    measure = Measure() if closed else Measure(load="requests per second")
    level = "concurrency" if closed else "offered_requests_per_second"
    curves = {
        label: curve_of(
            label,
            [asdict(stage) for stage in stages if stage.label == label],
            doubtful,
            lambda stage: stage["output_tokens_per_second"],
            lambda stage: stage[level],
        )
        for label in dict.fromkeys(stage.label for stage in stages)
    }
    return [
        (first, second, crossover(curves[first], curves[second], measure)) for first, second in combinations(curves, 2)
    ]


def _stage(stage: LoadtestStage, *, trusted: bool) -> dict[str, Any]:
    per_chunk = stage.tokens_per_chunk
    single = per_chunk is not None and abs(per_chunk - 1) <= _CHUNK_IS_TOKEN
    return {
        "stage_id": stage.stage_id,
        "url": stage.url,
        "label": stage.label,
        "engine": stage.engine,
        "engine_version": stage.engine_version,
        "model_id": stage.model_id,
        "mode": stage.mode,
        "concurrency": stage.concurrency,
        "offered_requests_per_second": stage.offered_requests_per_second,
        "repeat": stage.repeat,
        "trusted": trusted,
        "requests": stage.requests,
        "succeeded": stage.succeeded,
        "failed": stage.failed,
        "cancelled": stage.cancelled,
        "window_seconds": stage.window_seconds,
        "whole_seconds": stage.whole_seconds,
        "output_tokens_per_second": stage.output_tokens_per_second,
        "whole_output_tokens_per_second": stage.whole_output_tokens_per_second,
        "request_per_second": stage.requests_per_second,
        "goodput_requests_per_second": stage.goodput_requests_per_second,
        "goodput_fraction": stage.goodput_fraction,
        "user_tokens_per_second": stage.user_tokens_per_second,
        "ttft_seconds": _latency(stage, "ttft"),
        "tpot_seconds": _latency(stage, "tpot"),
        "itl_seconds": _latency(stage, "icl") if single else None,
        "icl_seconds": _latency(stage, "icl"),
        "e2e_seconds": _latency(stage, "e2e"),
        "input_tokens": stage.input_tokens,
        "output_tokens": stage.output_tokens,
        "cached_input_tokens": stage.cached_input_tokens,
        "tokens_per_chunk": per_chunk,
        "tokens_source": stage.tokens_source,
    }


def _latency(stage: LoadtestStage, name: str) -> dict[str, float | None] | None:
    found: dict[str, float | None] = {each: getattr(stage, f"{name}_{each}_seconds") for each in _PERCENTILES}
    return found if any(value is not None for value in found.values()) else None


def _judgements(rows: Sequence[LoadtestJudgement]) -> list[Judgement]:
    """Rows as judgements; a severity that is not known of fails."""
    return [Judgement(row.code, _SEVERITIES.get(row.severity, "failed"), row.text, row.stage_id) for row in rows]
