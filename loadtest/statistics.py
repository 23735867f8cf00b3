"""
From the times of requests to the figures of a stage. Pure.

Definitions, all over the requests of one stage after its warm-up:

- Latencies (TTFT, TPOT, E2E and those in `loadtest.timing`) are taken over the requests that succeeded and were sent
  and done inside the steady window. ICL is the gap between two chunks of one reply, over all of these requests; a
  chunk is no token, so ICL is not ITL. (`vllm bench serve` calls the same list "itl"; guidellm's ITL is our TPOT.)
- Percentiles are `numpy.percentile` with method "linear" (Hyndman and Fan 1996, definition 7): that of `vllm bench
  serve` and aiperf. Of n values, p99 lies between the two greatest as long as n is at most 100.
- Output tokens per second in the window: tokens that arrived inside it, over its length, whichever request they belong
  to and whether or not that is done. A chunk counts for the tokens that the server told for it. Where it tells only the
  number of a whole reply, that is spread evenly over the reply's chunks. A reply that was cancelled before the server
  told its tokens counts for its chunks times the tokens per chunk of the others. Failed requests count for nothing.
- Output tokens per second of the whole run: tokens of the requests that succeeded, over the time from the first
  request sent to the last one ended, as in `vllm bench serve` (ramp and tail included).
- Requests per second: those that succeeded and were done inside the window, over its length.
- Goodput: of these, the ones that met every stated SLO (DistServe, Zhong et al., OSDI 2024, section 2). A value that
  is not measurable, such as the TPOT of a reply in one chunk, meets no SLO. Its fraction is of all requests that were
  done inside the window, failed ones included.
- User speed: mean over requests of 1 / TPOT, what one user sees after the first token.

``None`` is "not measurable" and never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from loadtest.timing import RequestTiming, Window

# Weakest last: the source of a stage is the weakest of its requests'.
TOKEN_SOURCES = ("usage", "timings", "file", "tokenize", "chunks")
CHUNK_COUNTS, SPREAD, ESTIMATED = "told for each chunk", "spread evenly over the chunks", "estimated from chunks"


class Objectives(Protocol):
    """The SLOs that count as good service, each in seconds or None: `loadtest.spec.Slo`."""

    @property
    def ttft_seconds(self) -> float | None:
        """Most that TTFT may be."""

    @property
    def tpot_seconds(self) -> float | None:
        """Most that TPOT may be."""

    @property
    def e2e_seconds(self) -> float | None:
        """Most that E2E may be."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of one latency over `count` values, in seconds."""

    count: int
    mean_seconds: float
    p50_seconds: float
    p90_seconds: float
    p95_seconds: float
    p99_seconds: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution | None:
        """That of the values that are known; None when there is none."""
        return cls.of_array(np.array([value for value in values if value is not None], dtype=float))

    @classmethod
    def of_array(cls, known: np.ndarray) -> Distribution | None:
        """That of values all of which are known; None when there is none."""
        if not len(known):
            return None
        percentiles = np.percentile(known, (50, 90, 95, 99), method="linear")
        return cls(len(known), float(known.mean()), *(float(value) for value in percentiles))


@dataclass(frozen=True, slots=True)
class StageSummary:
    """The figures of a stage, as `store.loadtest_rows.LoadtestStage` holds them."""

    requests: int
    succeeded: int
    failed: int
    cancelled: int
    in_window: int  # succeeded, sent and done inside the window: what the latencies are made of
    window_seconds: float | None
    whole_seconds: float | None
    input_tokens: float | None
    output_tokens: float | None
    cached_input_tokens: float | None
    tokens_source: str | None
    window_tokens: float | None  # output tokens that arrived inside the window
    window_tokens_by: str | None  # how a chunk's tokens are known, the weakest way of all requests
    output_tokens_per_second: float | None
    whole_output_tokens_per_second: float | None
    requests_per_second: float | None
    goodput_requests_per_second: float | None
    goodput_fraction: float | None
    user_tokens_per_second: float | None
    tokens_per_chunk: float | None
    ttft: Distribution | None
    ttfv: Distribution | None
    tpot: Distribution | None
    icl: Distribution | None
    e2e: Distribution | None
    from_schedule: Distribution | None

    def columns(self) -> dict[str, Any]:
        """The measured columns of a `LoadtestStage`, but for its times of day and `counters`."""
        own = (
            "window_seconds", "whole_seconds", "requests", "succeeded", "failed", "cancelled", "input_tokens",
            "output_tokens", "cached_input_tokens", "tokens_source", "output_tokens_per_second",
            "whole_output_tokens_per_second", "requests_per_second", "goodput_requests_per_second",
            "goodput_fraction", "user_tokens_per_second", "tokens_per_chunk",
        )  # fmt: skip
        columns = {name: getattr(self, name) for name in own}
        for name in ("ttft", "tpot", "icl", "e2e"):
            distribution = getattr(self, name)
            for statistic in STATISTICS:
                columns[f"{name}_{statistic}"] = None if distribution is None else getattr(distribution, statistic)
        return columns

    def details(self) -> dict[str, Any]:
        """What has no column of its own: JSON for `LoadtestStage.details`."""
        more: dict[str, Any] = {
            "requests_in_window": self.in_window,
            "window_output_tokens": self.window_tokens,
            "window_tokens_by": self.window_tokens_by,
        }
        for name in ("ttfv", "from_schedule"):
            distribution = getattr(self, name)
            for statistic in STATISTICS:
                more[f"{name}_{statistic}"] = None if distribution is None else getattr(distribution, statistic)
        for name in ("ttft", "tpot", "icl"):
            distribution = getattr(self, name)
            more[f"{name}_values"] = 0 if distribution is None else distribution.count
        return more


STATISTICS = tuple(field.name for field in fields(Distribution) if field.name != "count")


def summarise(requests: Sequence[RequestTiming], window: Window | None, slo: Objectives) -> StageSummary:
    """
    The figures of one stage from its requests, warm-up left out; the module says how each is defined.

    Without a window, or with an empty one, everything that is of the window is None.
    """
    good = [request for request in requests if request.status == "ok"]
    window = window if window is not None and window.seconds > 0 else None
    inside = [request for request in good if window is not None and window.holds(request)]
    whole = _whole_seconds(requests)
    output = _sum(request.output_tokens for request in good)
    tokens, tokens_by = _window_tokens(requests, window)
    done = [request for request in requests if request.status != "cancelled" and _done_inside(request, window)]
    completed = sum(request.status == "ok" for request in done)
    met = sum(meets(request, slo) for request in done)
    stated = any(value is not None for value in (slo.ttft_seconds, slo.tpot_seconds, slo.e2e_seconds))
    seconds = window.seconds if window is not None else None
    return StageSummary(
        requests=len(requests),
        succeeded=len(good),
        failed=sum(request.status == "error" for request in requests),
        cancelled=sum(request.status == "cancelled" for request in requests),
        in_window=len(inside),
        window_seconds=seconds,
        whole_seconds=whole,
        input_tokens=_sum(request.input_tokens for request in good),
        output_tokens=output,
        cached_input_tokens=_sum(request.cached_input_tokens for request in good),
        tokens_source=weakest(request.tokens_source for request in good),
        window_tokens=tokens,
        window_tokens_by=tokens_by,
        output_tokens_per_second=_rate(tokens, seconds),
        whole_output_tokens_per_second=_rate(output, whole),
        requests_per_second=_rate(completed, seconds),
        goodput_requests_per_second=_rate(met, seconds) if stated else None,
        goodput_fraction=met / len(done) if stated and done else None,
        user_tokens_per_second=_user_speed(inside),
        tokens_per_chunk=_tokens_per_chunk(inside),
        ttft=Distribution.of(request.ttft_seconds for request in inside),
        ttfv=Distribution.of(request.ttfv_seconds for request in inside),
        tpot=Distribution.of(request.tpot_seconds for request in inside),
        icl=Distribution.of_array(_gaps(inside)),
        e2e=Distribution.of(request.e2e_seconds for request in inside),
        from_schedule=Distribution.of(request.from_schedule_seconds for request in inside),
    )


def meets(request: RequestTiming, slo: Objectives) -> bool:
    """Whether a request succeeded and met every stated SLO; a value that is not measurable meets none."""
    limits = (
        (slo.ttft_seconds, request.ttft_seconds),
        (slo.tpot_seconds, request.tpot_seconds),
        (slo.e2e_seconds, request.e2e_seconds),
    )
    if request.status != "ok":
        return False
    return all(limit is None or (value is not None and value <= limit) for limit, value in limits)


def weakest(sources: Iterable[str | None]) -> str | None:
    """The weakest of the sources of token counts; one that is not known of is the weakest."""
    known = {source for source in sources if source is not None}
    return max(known, key=lambda s: TOKEN_SOURCES.index(s) if s in TOKEN_SOURCES else len(TOKEN_SOURCES), default=None)


def chunk_weights(request: RequestTiming, tokens_per_chunk: float | None) -> tuple[np.ndarray, str] | None:
    """
    How many tokens each chunk of a reply brought, and how that is known; None where it can't be.

    Tokens that came without text (the end of a reply) are spread like the others, so that the sum is the reply's.
    """
    chunks, output = len(request.chunk_seconds), request.output_tokens
    if not chunks:
        return None
    if None not in request.chunk_tokens and len(request.chunk_tokens) == chunks:
        told = np.array(request.chunk_tokens, dtype=float)
        if (total := float(told.sum())) > 0:
            return told if output is None else told * (output / total), CHUNK_COUNTS
    if output is None:
        return None if tokens_per_chunk is None else (np.full(chunks, tokens_per_chunk), ESTIMATED)
    first = request.first_chunk_tokens
    if first is not None and chunks > 1 and first <= output:
        spread = np.full(chunks, (output - first) / (chunks - 1))
        spread[0] = first
        return spread, SPREAD
    return np.full(chunks, output / chunks), SPREAD


def _gaps(requests: Sequence[RequestTiming]) -> np.ndarray:
    """All times between successive chunks of one reply, in seconds."""
    gaps = [np.diff(np.asarray(request.chunk_seconds, dtype=float)) for request in requests if request.chunk_seconds]
    return np.concatenate(gaps) if gaps else np.empty(0)


def _window_tokens(requests: Sequence[RequestTiming], window: Window | None) -> tuple[float | None, str | None]:
    """Output tokens that arrived inside the window, and the weakest way in which their chunks' counts are known."""
    if window is None:
        return None, None
    per_chunk = _tokens_per_chunk([request for request in requests if request.status == "ok"])
    total, ways = 0.0, set()
    for request in requests:
        if request.status == "error" or not request.chunk_seconds:
            continue
        weights = chunk_weights(request, per_chunk)
        if weights is None:
            return None, None  # tokens came that nobody counted
        at = np.asarray(request.chunk_seconds, dtype=float)
        arrived = float(weights[0][(at >= window.begin_seconds) & (at <= window.end_seconds)].sum())
        total += arrived
        if arrived:
            ways.add(weights[1])
    return total, next((way for way in (ESTIMATED, SPREAD, CHUNK_COUNTS) if way in ways), None)


def _done_inside(request: RequestTiming, window: Window | None) -> bool:
    if window is None or request.done_seconds is None:
        return False
    return window.begin_seconds <= request.done_seconds <= window.end_seconds


def _whole_seconds(requests: Sequence[RequestTiming]) -> float | None:
    sent = [request.sent_seconds for request in requests if request.sent_seconds is not None]
    done = [request.done_seconds for request in requests if request.done_seconds is not None]
    return max(done) - min(sent) if sent and done else None


def _tokens_per_chunk(requests: Sequence[RequestTiming]) -> float | None:
    told = [request for request in requests if request.output_tokens is not None and request.chunk_seconds]
    chunks = sum(len(request.chunk_seconds) for request in told)
    return sum(request.output_tokens or 0 for request in told) / chunks if chunks else None


def _user_speed(requests: Sequence[RequestTiming]) -> float | None:
    speeds = [1 / request.tpot_seconds for request in requests if request.tpot_seconds]
    return float(np.mean(speeds)) if speeds else None


def _sum(values: Iterable[int | None]) -> float | None:
    """None where any of them is not known: a sum of some is not the sum."""
    known = list(values)
    return None if not known or any(value is None for value in known) else float(sum(value or 0 for value in known))


def _rate(amount: float | None, seconds: float | None) -> float | None:
    return amount / seconds if amount is not None and seconds else None
