"""The JSON of `loadtest run`. Its keys are those of the command line's contract, as a script would read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from loadtest.records import RunEnded
from loadtest.results import crossovers, json_document
from store.loadtest_rows import LoadtestStage
from tests.support.loadtest_rows import judgement, stage

ENDED = RunEnded(datetime(2026, 12, 1, tzinfo=UTC), "finished", None, {"cpu_fraction": 0.3})
CONTRACT = {
    "url", "engine", "model_id", "concurrency", "requests", "failed", "window_seconds", "output_tokens_per_second",
    "request_per_second", "ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "input_tokens",
    "output_tokens", "tokens_source",
}  # fmt: skip


def two_engines() -> list[LoadtestStage]:
    """llama.cpp makes 100, 180 and 250 tokens per second at 1, 2 and 4 users, vLLM 70, 140 and 300; within 1 %."""
    rows = []
    for label, means in (("llama.cpp", (100, 180, 250)), ("vLLM", (70, 140, 300))):
        for users, mean in zip((1, 2, 4), means, strict=True):
            for repeat, off in enumerate((0.99, 1.0, 1.01)):
                values = {"concurrency": users, "repeat": repeat, "output_tokens_per_second": mean * off}
                rows.append(stage(len(rows), label=label, **values))
    return rows


def test_every_key_of_the_contract_is_there() -> None:
    latency = {f"ttft_{each}_seconds": 0.1 * n for n, each in enumerate(("mean", "p50", "p90", "p95", "p99"), 1)}
    rows = [stage(0, requests=8, failed=0, tokens_source="usage", requests_per_second=2.0, **latency)]
    found = json.loads(json_document("run-1", rows, [judgement("errors")], ENDED, None))
    assert found["run_id"] == "run-1"
    (told,) = found["stages"]
    assert told.keys() >= CONTRACT
    assert told["request_per_second"] == 2.0
    assert told["ttft_seconds"] == pytest.approx({"mean": 0.1, "p50": 0.2, "p90": 0.3, "p95": 0.4, "p99": 0.5})
    assert told["tpot_seconds"] is None  # nothing of it was measurable
    assert found["client"] == {"saturated": False, "reasons": [], "figures": {"cpu_fraction": 0.3}}
    assert found["judgement"] == [
        {"code": "errors", "severity": "ok", "text": "as it should be", "stage_id": None},
    ]
    assert (found["trusted"], told["trusted"]) == (True, True)


def test_gaps_between_chunks_are_gaps_between_tokens_only_where_a_chunk_is_one() -> None:
    one, several = (stage(n, icl_p50_seconds=0.02, tokens_per_chunk=per) for n, per in enumerate((1.0, 3.8)))
    told = json.loads(json_document("r", [one, several], [], ENDED, None))["stages"]
    assert told[0]["itl_seconds"]["p50"] == 0.02
    assert told[1]["itl_seconds"] is None
    assert told[1]["icl_seconds"]["p50"] == 0.02


def test_a_failed_stage_is_not_trusted_and_neither_is_its_run() -> None:
    rows = two_engines()
    found = json.loads(
        json_document(
            "r", rows, [judgement("client_saturated", "failed", 3, text="The client was a bottleneck.")], ENDED, None
        )
    )
    assert found["trusted"] is False
    assert [each["stage_id"] for each in found["stages"] if not each["trusted"]] == [3]
    assert found["client"]["saturated"] is True
    assert found["client"]["reasons"] == ["The client was a bottleneck."]
    assert found["crossover"][0]["left_out"] == ["llama.cpp at 2: 1 of 3 repeats failed their checks"]


def test_the_crossover_of_two_endpoints() -> None:
    ((first, second, found),) = crossovers(two_engines(), [])
    assert (first, second) == ("llama.cpp", "vLLM")
    assert found.sentence.startswith("vLLM overtakes llama.cpp between 2 and 4 users")
    told = json.loads(json_document("r", two_engines(), [], None, "no collector"))
    assert told["crossover"][0]["between"] == [[2, 4]]
    assert told["state"] is None
    assert told["others_not_judged"] == "no collector"


def test_a_run_that_failed_as_a_whole_compares_nothing() -> None:
    ((_, _, found),) = crossovers(two_engines(), [judgement("no_stage", "failed")])
    assert found.kind == "not comparable"


def test_one_endpoint_has_nothing_to_be_compared_with() -> None:
    assert crossovers([stage()], []) == []
