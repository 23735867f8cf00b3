"""
Public reports of wrong benchmark numbers that were wrong about tokens and first tokens, one test each.

Numbers are those of the list of known failures that the load test was written against. Each test runs the real
worker process against a server that behaves in that way; expected values are what the server sent, by its own record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loadtest_worker import Told, run, spec
from tests.support.scripted_server import (
    DONE,
    Call,
    Reply,
    ScriptedServer,
    answer,
    delta,
    event,
    stream,
    text,
    usage,
    usage_chunk,
)

LATE = 0.15  # seconds: long enough to be told from the noise of a busy machine
CLOSE = {"abs": 0.05}  # of times, where the other value would be LATE away


def measured_only(reply: Callable[[Call], Reply]) -> Callable[[Call], Reply]:
    """`reply` for the requests that are measured; preparation asks for two tokens and gets a good answer."""
    return lambda call: reply(call) if call.max_tokens > 2 else answer(call)


def ran(reply: Callable[[Call], Reply], folder: Path, **changes: object) -> tuple[Told, list[Call]]:
    with ScriptedServer(measured_only(reply)) as server:
        given = spec(server.url, **changes)
        if "api" in given:
            given["endpoints"][0]["api"] = given.pop("api")
        return run(given, folder), server.measured()


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_1_a_role_or_an_empty_chunk_is_no_first_token(tmp_path: Path) -> None:
    # vllm#3759, vllm#15106: TTFT was that of the role chunk, and the wait for the token became the "first ITL".
    def reply(call: Call) -> Reply:
        words = [(LATE if n == 0 else 0.0, delta(content=f"w{n} ")) for n in range(5)]
        end = delta("length") + usage_chunk(usage(call.prompt_tokens, 5)) + DONE
        return Reply([(0.0, delta(role="assistant", content="")), (0.0, delta(content=None)), *words, (0.0, end)])

    told, calls = ran(reply, tmp_path, api="chat")
    sent = mean([call.sent_at[2] - call.received_at for call in calls])
    assert sent >= LATE
    assert told.stage.ttft_mean_seconds == pytest.approx(sent, **CLOSE)
    assert told.stage.icl_mean_seconds == pytest.approx(0, **CLOSE)
    assert all(request.chunks == 5 for request in told.requests)
    assert all((request.first_data_seconds or 9) - (request.sent_seconds or 0) < LATE for request in told.requests)


def test_2_a_chunk_is_not_a_token(tmp_path: Path) -> None:
    # llama-benchy#11 (5.5 against 25 t/s), sglang#22063: speculative decoding sends several tokens a chunk.
    def reply(call: Call) -> Reply:
        return stream(*[text("a b c d")] * 4, usage_chunk(usage(call.prompt_tokens, 16)), DONE, pause=0.02)

    told, calls = ran(reply, tmp_path, output={"tokens": 16})
    assert told.stage.output_tokens == 8 * 16
    assert told.stage.tokens_per_chunk == 4
    # (last - first chunk) / (16 tokens - 1 of the first chunk): what the server did not say of its first chunk.
    tpot = mean([(call.sent_at[3] - call.sent_at[0]) / 15 for call in calls])
    assert told.stage.tpot_mean_seconds == pytest.approx(tpot, rel=0.2)
    assert told.stage.tokens_source == "usage"


def test_3_a_rate_weighs_chunks_by_their_tokens(tmp_path: Path) -> None:
    # vllm#50677: a "peak" that counted chunks was below the mean. One chunk of 9 tokens, and one of 1.
    def reply(call: Call) -> Reply:
        first = text("many", usage=usage(call.prompt_tokens, 9))
        last = text("one", usage=usage(call.prompt_tokens, 10), finish_reason="length")
        return Reply([(0.0, first), (0.05, last + DONE)])

    told, _ = ran(reply, tmp_path, output={"tokens": 10})
    details = told.details()
    assert details["window_tokens_by"] == "told for each chunk"
    assert details["window_output_tokens"] == 80
    assert all(request.first_chunk_tokens == 9 for request in told.requests)
    assert told.stage.output_tokens_per_second == pytest.approx(80 / (told.stage.window_seconds or 0))


def test_4_gaps_between_chunks_hold_no_ttft_and_are_no_tpot(tmp_path: Path) -> None:
    # vllm#46652, vllm#7242: the list called ITL held chunk gaps, and the time to the first one.
    def reply(call: Call) -> Reply:
        pieces = [(LATE, text("two of them")), (0.04, text("two of them")), (0.04, text("two of them"))]
        return Reply([*pieces, (0.0, usage_chunk(usage(call.prompt_tokens, 6)) + DONE)])

    told, calls = ran(reply, tmp_path, output={"tokens": 6})
    gaps = [
        later - earlier for call in calls for earlier, later in zip(call.sent_at[:2], call.sent_at[1:3], strict=True)
    ]
    assert told.stage.icl_mean_seconds == pytest.approx(mean(gaps), rel=0.2)
    assert (told.stage.icl_p99_seconds or 9) < LATE
    assert told.details()["icl_values"] == 8 * 2
    # Two gaps for five tokens after the first: TPOT is 2/5 of a gap.
    assert told.stage.tpot_mean_seconds == pytest.approx((told.stage.icl_mean_seconds or 0) * 2 / 5)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_5_reasoning_is_the_first_token_and_visible_text_comes_later(tmp_path: Path, name: str) -> None:
    # guidellm#737, genai-bench#81, inference-perf#559: TTFT was huge, null, or crashed.
    def reply(call: Call) -> Reply:
        thought = [(0.0, delta(**{name: "hm "})), (0.0, delta(**{name: "so "}))]
        end = delta("length") + usage_chunk(usage(call.prompt_tokens, 5)) + DONE
        visible = [(pause, delta(content="w ")) for pause in (LATE, 0.0, 0.0)]
        return Reply([*thought, *visible, (0.0, end)])

    told, calls = ran(reply, tmp_path, api="chat")
    first = mean([call.sent_at[0] - call.received_at for call in calls])
    visible = mean([call.sent_at[2] - call.received_at for call in calls])
    # Half of what lies between the two tells them apart, and is more than a busy machine takes to wake the client.
    assert told.stage.ttft_mean_seconds == pytest.approx(first, abs=LATE / 2)
    assert told.details()["ttfv_mean_seconds"] == pytest.approx(visible, abs=LATE / 2)
    assert visible - first >= LATE
    assert told.requests[0].chunks == 5


def test_5_a_tool_call_is_a_token_that_nobody_sees(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        calls = [{"index": 0, "function": {"arguments": "{"}}]
        end = delta("tool_calls") + usage_chunk(usage(call.prompt_tokens, 5)) + DONE
        return Reply([(0.0, delta(role="assistant")), *[(0.01, delta(tool_calls=calls))] * 5, (0.0, end)])

    told, _ = ran(reply, tmp_path, api="chat")
    assert told.requests[0].chunks == 5
    assert told.requests[0].first_visible_seconds is None
    assert told.details()["ttfv_mean_seconds"] is None
    assert told.stage.ttft_mean_seconds is not None


def test_6_tokens_that_a_parser_held_back_do_not_make_decoding_fast(tmp_path: Path) -> None:
    # FastDeploy#8113, genai-bench#31 (200 k tok/s): 40 tokens in the first chunk, then one every 20 ms.
    def reply(call: Call) -> Reply:
        held = [
            event({"choices": [{"index": 0, "text": ""}], "usage": usage(call.prompt_tokens, n)}) for n in (10, 20, 30)
        ]
        released = text("forty", usage=usage(call.prompt_tokens, 40))
        later = [(0.02, text("w", usage=usage(call.prompt_tokens, 41 + n))) for n in range(10)]
        return Reply([*[(0.0, piece) for piece in held], (0.05, released), *later, (0.0, DONE)])

    told, calls = ran(reply, tmp_path, output={"tokens": 50})
    assert told.requests[0].first_chunk_tokens == 40
    assert told.stage.output_tokens == 8 * 50
    # Ten tokens after the first chunk, and the server's own time between those chunks.
    tpot = mean([(call.sent_at[13] - call.sent_at[3]) / 10 for call in calls])
    assert told.stage.tpot_mean_seconds == pytest.approx(tpot, rel=0.2)


def test_7_a_reply_in_one_chunk_has_no_tpot_and_meets_no_slo_of_it(tmp_path: Path) -> None:
    # gpustack's benchmark.py: TPOT 0 passed every SLO.
    def reply(call: Call) -> Reply:
        return stream(text("all of it", finish_reason="length"), usage_chunk(usage(call.prompt_tokens, 5)), DONE)

    told, _ = ran(reply, tmp_path, slo={"tpot_seconds": 10})
    assert told.stage.succeeded == 8
    assert told.stage.tpot_mean_seconds is None
    assert told.stage.user_tokens_per_second is None
    assert told.stage.goodput_requests_per_second == 0
    assert told.severities("one_chunk_replies") == {"warning"}


def test_7_a_reply_that_is_not_streamed_is_one_chunk(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        content = {"choices": [{"text": "all of it", "finish_reason": "length"}], "usage": usage(call.prompt_tokens, 5)}
        return Reply([(LATE, event(content)[6:])], content_type="application/json")

    told, calls = ran(reply, tmp_path)
    assert (told.stage.succeeded, told.stage.output_tokens) == (8, 40)
    assert told.stage.tpot_mean_seconds is None
    assert told.stage.ttft_mean_seconds == pytest.approx(mean([c.sent_at[0] - c.received_at for c in calls]), **CLOSE)


def test_15_tokens_are_counted_by_the_server_and_not_from_the_text(tmp_path: Path) -> None:
    # flexible-inference-bench#66: a hundred spaces are seven tokens.
    def reply(call: Call) -> Reply:
        return stream(text(" " * 100), usage_chunk(usage(call.prompt_tokens, 7)), DONE)

    told, _ = ran(reply, tmp_path, output={"tokens": 7})
    assert told.stage.output_tokens == 8 * 7
    assert told.severities("output_length") == {"ok"}


def test_15_usage_in_the_last_chunk_with_choices_counts(tmp_path: Path) -> None:
    # llama.cpp, vllm#18692. It tells nothing of the chunks before it.
    def reply(call: Call) -> Reply:
        last = text("", finish_reason="length", usage=usage(call.prompt_tokens, 9, cached_tokens=0))
        return stream(*[text("w")] * 3, last, DONE)

    told, _ = ran(reply, tmp_path, output={"tokens": 9})
    assert told.stage.output_tokens == 8 * 9
    assert told.requests[0].first_chunk_tokens is None
    assert (told.stage.cached_input_tokens, told.stage.input_tokens) == (0, 8 * 20)


def test_15_timings_of_llama_cpp_count_where_there_is_no_usage(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        timings = {"prompt_n": call.prompt_tokens - 4, "cache_n": 4, "predicted_n": 6}
        return stream(*[text("w")] * 3, text("", finish_reason="length", timings=timings), DONE)

    told, _ = ran(reply, tmp_path, output={"tokens": 6})
    assert told.stage.tokens_source == "timings"
    assert (told.stage.output_tokens, told.stage.cached_input_tokens) == (48, 32)


def test_18_what_is_not_told_is_not_made_up(tmp_path: Path) -> None:
    # vllm-benchmark-suite filled gaps with invented numbers. Without usage, chunks are a lower bound and labelled.
    told, _ = ran(lambda call: stream(*[text("w w")] * 3, DONE), tmp_path)
    assert told.stage.tokens_source == "chunks"
    assert told.stage.output_tokens == 8 * 3
    assert told.stage.input_tokens is None
    assert told.stage.cached_input_tokens is None
    assert told.severities("tokens_by_chunks") == {"warning"}


def test_18_a_stage_without_a_good_answer_has_no_latencies(tmp_path: Path) -> None:
    told, _ = ran(lambda call: Reply([(0.0, b'{"error": {"message": "out of memory"}}')], 500), tmp_path)
    stage = told.stage
    assert (stage.succeeded, stage.failed) == (0, 8)
    assert stage.ttft_mean_seconds is None
    assert stage.output_tokens is None
    assert "out of memory" in (told.requests[0].error or "")
    assert told.severities("errors") == {"failed"}
