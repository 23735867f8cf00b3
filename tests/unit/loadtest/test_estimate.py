"""What a load test asks for at most, and its time from rates that were measured before. By hand calculation."""

from __future__ import annotations

import pytest

from loadtest import estimate
from loadtest.spec import Spec


def spec(**more: object) -> Spec:
    endpoints = [{"url": "http://127.0.0.1:8000", "engine_id": "a"}]
    return Spec.from_json({"endpoints": endpoints, "levels": [1, 4], "repeats": 2, **more})


def test_counts_are_those_of_every_stage() -> None:
    found = estimate.of(spec(), {})
    # One user: at least 8 requests; four users: five each. (8 + 20) x 2 repeats = 56 of 1,000 in and 200 out.
    assert found.stages == 4
    assert (found.requests, found.input_tokens, found.output_tokens) == (56, 56_000, 11_200)
    assert found.seconds is None


def test_level_one_is_counted_where_it_was_not_asked_for() -> None:
    assert estimate.of(spec(levels=[4]), {}).stages == 4


def test_a_plan_in_seconds_has_no_number_of_requests() -> None:
    found = estimate.of(spec(duration_seconds=30.0), {})
    assert (found.requests, found.input_tokens, found.output_tokens) == (None, None, None)


def test_uniform_prompts_count_with_their_greatest_length() -> None:
    lengths = {"distribution": "uniform", "tokens": 600, "tokens_min": 200, "tokens_max": 1000}
    assert estimate.of(spec(input=lengths, requests=10), {}).input_tokens == 4 * 10 * 1000


def test_the_time_is_the_tokens_of_each_stage_over_its_rate_and_its_warmup() -> None:
    found = estimate.of(spec(requests=10), {"a": {1.0: 100.0, 4.0: 200.0}})
    # 10 x 200 tokens: 20 s at one user, 10 s at four, twice each. Warm-up of 32 tokens a user, two batches the first
    # time and one the second: 3 x 32 / 100 = 0.96 s and 3 x 4 x 32 / 200 = 1.92 s.
    assert found.seconds == pytest.approx(2 * 20 + 2 * 10 + 0.96 + 1.92)


def test_the_time_is_not_known_while_one_level_was_never_measured() -> None:
    assert estimate.of(spec(), {"a": {1.0: 100.0}}).seconds is None


def test_the_time_is_never_longer_than_the_limit() -> None:
    limited = spec(requests=1000, limits={"seconds": 60.0})
    assert estimate.of(limited, {"a": {1.0: 1.0, 4.0: 1.0}}).seconds == 60.0
