"""What a load test is to do: read, checked, and handed on unchanged; its records as lines."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loadtest.records import Progress, RecordError, RunEnded, from_line, to_line
from loadtest.spec import Spec, SpecError
from loadtest.sweep import plan
from store.loadtest_rows import LoadtestJudgement

ONE = {"endpoints": [{"url": "http://127.0.0.1:8000/v1/"}]}


def spec(**changes: Any) -> Spec:
    return Spec.from_json({**ONE, **changes})


def test_the_defaults_are_those_of_the_article() -> None:
    # "1000 prompt and 200 output tokens", users 1 to 32, three repeats.
    given = spec()
    assert given.mode == "closed"
    assert given.levels == (1, 2, 4, 8, 16, 32)
    assert (given.input.tokens, given.output.tokens, given.output.ignore_eos, given.repeats) == (1000, 200, True, 3)
    assert given.endpoints[0].url == "http://127.0.0.1:8000"
    assert given.endpoints[0].name == "127.0.0.1:8000"


def test_what_is_written_is_read_again() -> None:
    given = spec(levels=[2, 4], slo={"ttft_seconds": 0.5}, input={"distribution": "lognormal", "tokens": 300}, seed=3)
    assert Spec.from_json(given.to_json()) == given


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"endpoints": []}, "endpoints"),
        ({"endpoints": [{"url": "http://user:secret@host"}]}, "must not carry a user or password"),
        ({"endpoints": [{"url": "http://host:99999"}]}, "not a base URL"),
        ({"endpoints": [{"url": "http://a"}, {"url": "http://a"}]}, "same name"),
        ({"levels": [1.5]}, "whole number"),
        ({"levels": [0]}, "greater than 0"),
        ({"levels": [8], "requests": 4}, "keep no 8 users busy"),
        ({"input": {"kind": "file"}}, "need its path"),
        ({"input": {"path": "/x"}}, "set kind to 'file'"),
        ({"input": {"distribution": "uniform"}}, "tokens_min and tokens_max"),
        ({"input": {"tokens_min": 9, "tokens_max": 3}}, "greater than tokens_max"),
        ({"output": {"tokens": 0}}, "output.tokens"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_wrong_one_says_what_is_wrong(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec(**changes)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(SpecError, match="JSON"):
        Spec.from_json("{")


def test_a_stage_sends_five_requests_a_user_and_at_least_eight() -> None:
    assert [spec().stage_requests(level) for level in (1, 2, 32)] == [8, 10, 160]
    assert spec(requests=50).stage_requests(32) == 50
    assert spec(duration_seconds=10).stage_requests(32) is None
    assert spec(mode="poisson", levels=[2.5]).stage_requests(2.5) == 75  # thirty seconds of it


def test_level_1_is_swept_whether_asked_for_or_not_but_no_rate_is_added() -> None:
    assert spec(levels=[8, 2]).swept_levels == (1, 2, 8)
    assert spec(mode="constant", levels=[4]).swept_levels == (4,)


@pytest.mark.parametrize(
    ("interleave", "order"),
    [(True, "0:1A 0:1B 0:2B 0:2A 1:1B 1:1A 1:2A 1:2B"), (False, "0:1A 0:2A 1:1A 1:2A 0:1B 0:2B 1:1B 1:2B")],
)
def test_the_order_of_stages(interleave: bool, order: str) -> None:
    two = {"endpoints": [{"url": "http://a"}, {"url": "http://b"}]}
    given = spec(**two, levels=[1, 2], repeats=2, interleave=interleave)
    stages = list(plan(given))
    assert " ".join(f"{s.repeat}:{s.level:g}{'AB'[s.endpoint]}" for s in stages) == order
    assert [s.stage_id for s in stages] == list(range(8))


def test_records_are_lines_to_which_the_reader_adds_whose_they_are() -> None:
    now = datetime.now(UTC)
    judgement = LoadtestJudgement(now, "", "", None, "errors", "ok", "Every request succeeded.")
    line = to_line(judgement)
    assert "run_id" not in json.loads(line)
    assert "\n" not in line
    assert from_line(line, "host", "run") == replace(judgement, host="host", run_id="run")
    progress = Progress(now + timedelta(microseconds=1), 2, "measuring", 1, None, 0, 3, None, 1.5)
    assert from_line(to_line(progress), "host", "run") == progress
    ended = RunEnded(now, "finished", None, {"seconds": 1.0})
    assert from_line(to_line(ended), "host", "run") == ended


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"record": "request"}', '{"record": "progress", "ts": 5}', "nonsense"]
)
def test_a_line_that_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(RecordError):
        from_line(line, "host", "run")


def test_every_field_of_a_record_survives() -> None:
    names = {field.name for field in fields(LoadtestJudgement)} - {"host", "run_id"}
    line = to_line(LoadtestJudgement(datetime.now(UTC), "", "", 3, "errors", "ok", "x"))
    assert set(json.loads(line)) == names | {"record"}
