"""
From request times to the figures of a stage. Expected values are worked out by hand beside each test, by the
definitions of `vllm bench serve` (vllm/benchmarks/serve.py, calculate_metrics) where it is right, and by the reports
that the tests name where it is not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.spec import Slo
from loadtest.statistics import CHUNK_COUNTS, ESTIMATED, SPREAD, Distribution, meets, summarise
from loadtest.timing import RequestTiming, Window

NO_SLO = Slo()


def reply(
    number: int = 0,
    sent: float = 0.0,
    chunks: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8),
    tokens: int | None = 4,
    told: tuple[int | None, ...] | None = None,
    **values,
) -> RequestTiming:
    """A streamed reply that succeeded; `chunks` are the arrivals of its chunks, the first at 0.5 s."""
    known = {
        "status": "ok", "http_status": 200, "finish_reason": "length", "scheduled_seconds": sent, "sent_seconds": sent,
        "first_data_seconds": chunks[0], "first_token_seconds": chunks[0], "first_visible_seconds": chunks[0],
        "last_token_seconds": chunks[-1], "done_seconds": chunks[-1], "input_tokens": 10, "output_tokens": tokens,
        "tokens_source": "usage", "chunk_seconds": chunks, "chunk_tokens": told or (None,) * len(chunks),
    }  # fmt: skip
    return RequestTiming(number, **(known | values))


def test_latencies_of_one_request() -> None:
    # TTFT 0.5 - 0; TPOT (0.8 - 0.5) / (4 - 1); E2E 0.8; gaps of 0.1; user speed 1 / 0.1.
    summary = summarise([reply()], Window(0, 1), NO_SLO)
    assert summary.ttft.mean_seconds == pytest.approx(0.5)
    assert summary.tpot.p50_seconds == pytest.approx(0.1)
    assert summary.e2e.p99_seconds == pytest.approx(0.8)
    assert (summary.icl.count, summary.icl.mean_seconds) == (3, pytest.approx(0.1))
    assert summary.user_tokens_per_second == pytest.approx(10)


def test_percentiles_are_linear_between_the_nearest_ranks() -> None:
    # 1..5: rank of p90 is 0.9 * 4 = 3.6, so 4 + 0.6 * (5 - 4); p95 4.8; p99 4.96 (Hyndman and Fan, definition 7).
    found = Distribution.of([3, 1, None, 5, 2, 4])
    assert found == Distribution(5, 3, 3, pytest.approx(4.6), pytest.approx(4.8), pytest.approx(4.96))
    assert Distribution.of([None]) is None


def test_the_window_counts_the_tokens_that_arrived_in_it_and_the_whole_run_all() -> None:
    # Two users. The window is 1 s to 3 s. In it: two chunks of the first reply (2 and 3 tokens), none of the second's
    # first, its second with 5: 10 tokens in 2 s. The whole run has 7 + 6 tokens in 3 s.
    first = reply(0, 0.0, (0.5, 1.5, 2.5), 7, (2, 2, 3))
    second = reply(1, 0.0, (0.9, 3.0), 6, (1, 5))
    summary = summarise([first, second], Window(1, 3), NO_SLO)
    assert summary.window_tokens == 2 + 3 + 5
    assert summary.window_tokens_by == CHUNK_COUNTS
    assert summary.output_tokens_per_second == pytest.approx(5)
    assert summary.whole_output_tokens_per_second == pytest.approx((7 + 6) / 3.0)
    # Both were sent before the window: no latency is of it, which is "not measurable".
    assert summary.ttft is None
    assert summary.columns()["ttft_p50_seconds"] is None
    assert summary.requests_per_second == pytest.approx(2 / 2)  # both were done in it


def test_chunks_are_not_tokens() -> None:
    # llama-benchy#11 and sglang#22063: 3 chunks, 12 tokens in a second. 4 tokens a chunk, not 1.
    summary = summarise([reply(chunks=(0.2, 0.6, 1.0), tokens=12)], Window(0, 1), NO_SLO)
    assert summary.output_tokens_per_second == pytest.approx(12)
    assert summary.tokens_per_chunk == pytest.approx(4)
    assert summary.window_tokens_by == SPREAD
    assert summary.icl.mean_seconds == pytest.approx(0.4)  # between chunks
    assert summary.tpot.mean_seconds == pytest.approx(0.8 / 11)  # between tokens


def test_tokens_of_the_first_chunk_are_not_charged_to_tpot() -> None:
    # A first chunk of 5 tokens: 7 tokens came in the 0.7 s after it.
    summary = summarise([reply(chunks=(0.3, 1.0), tokens=12, first_chunk_tokens=5)], Window(0, 0.5), NO_SLO)
    assert reply(chunks=(0.3, 1.0), tokens=12, first_chunk_tokens=5).tpot_seconds == pytest.approx(0.1)
    assert summary.window_tokens == 5  # and only the first chunk is in the window


def test_a_reply_in_one_chunk_has_no_tpot_and_meets_no_tpot_slo() -> None:
    # gpustack: a TPOT of 0 passed any SLO.
    one = reply(chunks=(0.5,), tokens=40)
    summary = summarise([one], Window(0, 1), Slo(tpot_seconds=10))
    assert summary.tpot is None
    assert summary.icl is None
    assert summary.user_tokens_per_second is None
    assert summary.goodput_requests_per_second == 0
    assert meets(one, Slo(ttft_seconds=1))


def test_goodput_needs_every_slo_and_counts_failures_against_its_fraction() -> None:
    slo = Slo(ttft_seconds=0.6, e2e_seconds=1)
    slow = reply(1, chunks=(0.7, 0.8, 0.9))
    long = reply(2, chunks=(0.5, 1.2))
    failed = reply(3, status="error", error="closed early", done_seconds=0.8)
    summary = summarise([reply(0), slow, long, failed], Window(0, 2), slo)
    assert summary.goodput_requests_per_second == pytest.approx(1 / 2)
    assert summary.goodput_fraction == pytest.approx(1 / 4)
    assert summary.requests_per_second == pytest.approx(3 / 2)
    assert summarise([reply()], Window(0, 2), NO_SLO).goodput_fraction is None  # none stated: no goodput, not 1


def test_failed_requests_give_neither_tokens_nor_latencies() -> None:
    failed = reply(1, status="error", error="error in a 200 stream", output_tokens=400)
    summary = summarise([reply(0), failed], Window(0, 1), NO_SLO)
    assert (summary.requests, summary.succeeded, summary.failed) == (2, 1, 1)
    assert summary.window_tokens == 4
    assert summary.ttft.count == 1


def test_a_cancelled_reply_counts_for_what_it_had_brought() -> None:
    # The others bring 2 tokens a chunk (8 tokens, 4 chunks), so its 3 chunks in the window count 6.
    done = reply(0, tokens=8)
    cut = reply(1, chunks=(0.4, 0.5, 0.6), tokens=None, status="cancelled")
    summary = summarise([done, cut], Window(0, 1), NO_SLO)
    assert summary.window_tokens == pytest.approx(8 + 6)
    assert summary.window_tokens_by == ESTIMATED
    assert summary.output_tokens == 8
    assert summary.cancelled == 1
    # Where the server told each chunk's tokens, nothing is estimated.
    told = replace(cut, chunk_tokens=(1, 2, 2))
    assert summarise([done, told], Window(0, 1), NO_SLO).window_tokens == pytest.approx(8 + 5)


def test_a_sum_is_unknown_when_a_part_of_it_is() -> None:
    summary = summarise([reply(0), reply(1, input_tokens=None, cached_input_tokens=3)], Window(0, 1), NO_SLO)
    assert summary.input_tokens is None
    assert summary.cached_input_tokens is None
    assert summary.output_tokens == 8


def test_the_source_of_tokens_is_the_weakest() -> None:
    requests = [reply(0), reply(1, tokens_source="chunks"), reply(2, tokens_source="timings")]
    assert summarise(requests, Window(0, 1), NO_SLO).tokens_source == "chunks"


def test_without_a_window_what_is_of_it_is_unknown_and_the_rest_is_not() -> None:
    for window in (None, Window(1, 1)):
        summary = summarise([reply()], window, NO_SLO)
        assert summary.output_tokens_per_second is None
        assert summary.requests_per_second is None
        assert summary.ttft is None
        assert summary.whole_output_tokens_per_second == pytest.approx(4 / 0.8)
    nothing = summarise([], Window(0, 1), NO_SLO)
    assert (nothing.requests, nothing.output_tokens, nothing.whole_seconds) == (0, None, None)


def test_latency_from_the_schedule_holds_what_the_client_waited_to_send() -> None:
    # vllm#54101: a request due at 0 and sent at 2 took 0.8 s by its own account and 2.8 s for its user.
    late = reply(sent=2.0, chunks=(2.5, 2.8), scheduled_seconds=0.0)
    summary = summarise([late], Window(0, 3), NO_SLO)
    assert summary.e2e.mean_seconds == pytest.approx(0.8)
    assert summary.from_schedule.mean_seconds == pytest.approx(2.8)
    assert summary.details()["from_schedule_p50_seconds"] == pytest.approx(2.8)


def test_visible_text_after_reasoning_has_a_time_of_its_own() -> None:
    # guidellm#737: a reasoning delta is the first token; TTFV waits for what a person sees.
    summary = summarise([reply(first_visible_seconds=0.7)], Window(0, 1), NO_SLO)
    assert summary.ttft.mean_seconds == pytest.approx(0.5)
    assert summary.ttfv.mean_seconds == pytest.approx(0.7)


@st.composite
def replies(draw: st.DrawFn) -> list[RequestTiming]:
    """Up to eight requests with any chunks, of which some failed or were cut off."""
    made = []
    for number in range(draw(st.integers(1, 8))):
        sent = draw(st.floats(0, 20))
        gaps = draw(st.lists(st.floats(0.001, 3), min_size=1, max_size=12))
        chunks = tuple(float(at) for at in sent + np.cumsum(gaps))
        told = draw(st.booleans())
        status = draw(st.sampled_from(["ok", "ok", "ok", "error", "cancelled"]))
        made.append(
            reply(
                number,
                sent,
                chunks,
                tokens=draw(st.integers(len(chunks), 40)) if status == "ok" else None,
                told=(2,) * len(chunks) if told else None,
                status=status,
            )
        )
    return made


@given(replies(), st.floats(0.01, 40))
def test_windows_side_by_side_share_all_tokens_and_no_figure_is_out_of_its_range(requests, cut) -> None:
    def tokens(begin: float, end: float) -> float | None:
        return summarise(requests, Window(begin, end), NO_SLO).window_tokens

    end = 100.0
    whole, first, rest = tokens(0, end), tokens(0, cut), tokens(np.nextafter(cut, end), end)
    if whole is None:  # a reply without a count, and no other reply to judge its chunks by
        assert not any(request.status == "ok" for request in requests)
    else:
        assert first + rest == pytest.approx(whole)
        assert whole >= sum(request.output_tokens for request in requests if request.status == "ok") - 1e-6
    summary = summarise(requests, Window(0, cut), Slo(ttft_seconds=1.0))
    assert summary.succeeded + summary.failed + summary.cancelled == summary.requests
    assert summary.goodput_fraction is None or 0 <= summary.goodput_fraction <= 1
    for found in (summary.ttft, summary.tpot, summary.icl, summary.e2e):
        if found is not None:
            ordered = (found.p50_seconds, found.p90_seconds, found.p95_seconds, found.p99_seconds)
            assert list(ordered) == sorted(ordered)
            assert found.p50_seconds >= 0
