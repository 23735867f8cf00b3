"""What a load test will ask of its endpoints: requests, tokens, and its time where that was measured before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.spec import Spec

FIRST_WARMUP_BATCHES = 2  # at least so many until two of them agree; later repeats of a level have one


@dataclass(frozen=True, slots=True)
class Estimate:
    """Counts are upper bounds, warm-up left out; None where the plan is bounded by time alone."""

    stages: int
    requests: int | None
    input_tokens: int | None
    output_tokens: int | None
    seconds: float | None  # None: no measurement to work it out from
    most_seconds: float  # the limit of the run


def of(spec: Spec, measured: Mapping[str, Mapping[float, float]]) -> Estimate:
    """
    The work of a run. `measured`: output tokens per second by engine_id and level, of an earlier run of this workload.

    A stage takes its tokens over the rate measured at its level, its warm-up included. Its time is known for every
    stage or the run's is not.
    """
    repeats = len(spec.endpoints) * spec.repeats
    counts = [spec.stage_requests(level) for level in spec.swept_levels]
    known = [count for count in counts if count is not None]
    requests = min(sum(known) * repeats, spec.limits.requests) if len(known) == len(counts) else None
    given = spec.input
    longest = given.tokens if given.distribution == "fixed" else given.tokens_max
    if given.kind == "file":
        longest = None
    return Estimate(
        stages=len(counts) * repeats,
        requests=requests,
        input_tokens=None if requests is None or longest is None else requests * longest,
        output_tokens=None if requests is None else requests * spec.output.tokens,
        seconds=_seconds(spec, measured),
        most_seconds=spec.limits.seconds,
    )


def _seconds(spec: Spec, measured: Mapping[str, Mapping[float, float]]) -> float | None:
    total = 0.0
    for endpoint in spec.endpoints:
        rates = measured.get(endpoint.engine_id or "", {})
        for level in spec.swept_levels:
            rate, count = rates.get(level), spec.stage_requests(level)
            if not rate:
                return None
            length = spec.output.tokens * count / rate if count is not None else float("inf")
            length = min(length, spec.duration_seconds or float("inf"))
            batches = min(FIRST_WARMUP_BATCHES, spec.warmup.most_batches) + min(1, spec.warmup.most_batches) * (
                spec.repeats - 1
            )
            users = level if spec.mode == "closed" else 1.0
            warmup = batches * users * min(spec.warmup.output_tokens, spec.output.tokens) / rate
            total += length * spec.repeats + warmup
    return min(total, spec.limits.seconds)
