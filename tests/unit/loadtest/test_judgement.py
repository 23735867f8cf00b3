"""
A run's judgement of itself. Each case is one public report of a wrong benchmark or one rule; the numbers of a case are
made so that the expected severity follows from the stated threshold by a division that the test shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from loadtest.counted import Difference, EngineCounters, difference
from loadtest.facts import StageFacts
from loadtest.judgement import judge_run, judge_stage, trusted, untrusted_stages
from loadtest.spec import InputSpec, OutputSpec, Slo
from loadtest.statistics import summarise
from loadtest.timing import ClientFigures, Judgement, RequestTiming, Window

IDLE_CLIENT = ClientFigures(
    seconds=20, cpu_fraction=0.2, lag_p99_seconds=0.001, lag_max_seconds=0.002, lateness_p99_seconds=0.001,
    lateness_max_seconds=0.002, connections=4, connection_limit=1024, chunks_per_second=100,
    ceiling_chunks_per_second=10_000,
)  # fmt: skip


def request(number: int, **values) -> RequestTiming:
    """One of the requests of a user who sends the next one at once: 1 s to the first token, 10 tokens in 2 s."""
    sent = 2.0 * number
    chunks = tuple(sent + 1.0 + 0.1 * chunk for chunk in range(10))
    known = {
        "status": "ok", "http_status": 200, "finish_reason": "length", "scheduled_seconds": sent, "sent_seconds": sent,
        "first_data_seconds": chunks[0], "first_token_seconds": chunks[0], "last_token_seconds": chunks[-1],
        "done_seconds": chunks[-1], "asked_input_tokens": 100, "asked_output_tokens": 10, "input_tokens": 100,
        "cached_input_tokens": 0, "output_tokens": 10, "tokens_source": "usage", "chunk_seconds": chunks,
        "chunk_tokens": (1,) * 10,
    }  # fmt: skip
    return RequestTiming(number, **(known | values))


def counters(requests: int = 0, tokens: int = 10, prompt: int = 100, **values) -> EngineCounters:
    """An idle engine that has served `requests` requests, each of `tokens` and `prompt` tokens."""
    known = {
        "kind": "vllm", "version": "0.33.0", "model_id": "m", "settled": True, "running": 0.0, "waiting": 0.0,
        "values": {
            "generation_tokens_total": 1000.0 + requests * tokens,
            "prompt_with_cached_tokens_total": 5000.0 + requests * prompt,
            "requests_finished_total": float(requests),
        },
    }  # fmt: skip
    known["sources"] = dict.fromkeys(known["values"], "vllm")
    return EngineCounters(**(known | values))


def facts(requests: Sequence[RequestTiming] | None = None, **values) -> StageFacts:
    """A stage of ten requests of one user, with which nothing is wrong unless the test says so."""
    requests = [request(n) for n in range(10)] if requests is None else requests
    window = values.pop("window", Window(0.0, 20.0))
    known = {
        "stage_id": 3, "label": "vLLM", "mode": "closed", "level": 1.0, "requests": requests, "window": window,
        "summary": summarise(requests, window, Slo()), "client": IDLE_CLIENT,
        "input": InputSpec(tokens=100), "output": OutputSpec(tokens=10), "before": counters(), "after": counters(10),
    }  # fmt: skip
    known |= values
    known.setdefault("counted", difference(known["before"], known["after"]))
    return StageFacts(**known)


def judged(stage: StageFacts) -> dict[str, Judgement]:
    return {each.code: each for each in judge_stage(stage)}


def test_nothing_speaks_against_a_clean_stage() -> None:
    found = judge_stage(facts())
    assert [each.code for each in found if each.severity not in ("ok", "note")] == []
    assert {each.code for each in found if each.severity == "ok"} >= {
        "errors", "client_saturated", "output_length", "input_length", "counters_disagree",
    }  # fmt: skip
    assert all(each.stage_id == 3 for each in found)
    assert trusted(found)


@pytest.mark.parametrize(
    ("failed", "severity"),
    [(1, "note"), (2, "failed")],  # 1 of 20 is 5 %, which is allowed; 2 of 20 are 10 %
)
def test_errors_over_five_percent_fail_a_stage(failed, severity) -> None:
    requests = [request(n) for n in range(20)]
    for n in range(failed):
        requests[n] = request(n, status="error", error="HTTP 503: overloaded", http_status=503)
    found = judged(facts(requests, window=Window(0, 40)))
    assert found["errors"].severity == severity
    assert "HTTP 503" in found["errors"].text


def test_errors_inside_http_200_are_named() -> None:
    # guidellm's _check_streaming_error: an error in the stream was counted as a success with zero latency.
    requests = [request(n) for n in range(9)] + [request(9, status="error", error="error in the stream")]
    assert judged(facts(requests))["errors_in_200"].text.startswith("1 request failed although HTTP said 200")


@pytest.mark.parametrize(
    ("client", "severity", "names"),
    [
        ({"cpu_fraction": 0.95}, "failed", "95 % of a core"),
        ({"cpu_fraction": 0.8}, "warning", "80 % of a core"),
        ({"lag_p99_seconds": 0.15}, "failed", "150 ms late"),  # a tenth of a TTFT of 1 s is 100 ms
        ({"lag_p99_seconds": 0.06}, "warning", "60 ms late"),
        ({"lag_p99_seconds": 0.04}, "ok", ""),
        ({"lateness_p99_seconds": 0.25}, "failed", "250 ms late"),  # a tenth of an E2E of 1.9 s is 190 ms
        ({"connections": 100, "connection_limit": 100}, "failed", "all 100 connections"),  # httpx, guidellm#487
        ({"chunks_per_second": 9000}, "failed", "9000 chunks/s of the 10000"),
        ({"lag_p99_seconds": None, "lateness_p99_seconds": None, "ceiling_chunks_per_second": None}, "ok", ""),
    ],
)
def test_a_client_at_its_limit(client, severity, names) -> None:
    found = judged(facts(client=replace(IDLE_CLIENT, **client)))["client_saturated"]
    assert found.severity == severity
    assert names in found.text


def test_a_late_timer_says_nothing_beside_a_fast_first_token_unless_it_is_really_late() -> None:
    # TTFT of 10 ms: a tenth is 1 ms, within what an idle loop's timers do. 5 ms is where doubt begins.
    fast = [request(n, first_token_seconds=2.0 * n + 0.01) for n in range(10)]
    for lag, severity in ((0.004, "ok"), (0.006, "warning"), (0.021, "failed")):
        client = replace(IDLE_CLIENT, lag_p99_seconds=lag)
        assert judged(facts(fast, client=client))["client_saturated"].severity == severity


@pytest.mark.parametrize(
    ("lengths", "severity"),
    [([10] * 10, "ok"), ([10] * 9 + [6], "warning"), ([10] * 8 + [2, 2], "failed")],  # 96 and 84 of 100 tokens
)
def test_output_shorter_than_asked(lengths, severity) -> None:
    requests = [request(n, output_tokens=length, finish_reason="stop") for n, length in enumerate(lengths)]
    found = judged(facts(requests, counted=Difference({}, {}, settled=True)))["output_length"]
    assert found.severity == severity
    assert ("ignore_eos" in found.text) == (severity != "ok")


def test_output_that_may_end_by_itself_is_only_described() -> None:
    requests = [request(n, output_tokens=6) for n in range(10)]
    found = judged(facts(requests, output=OutputSpec(tokens=10, ignore_eos=False)))["output_length"]
    assert (found.severity, "6 tokens on average" in found.text) == ("note", True)


@pytest.mark.parametrize(("read", "severity"), [(104, "ok"), (92, "warning"), (70, "failed")])
def test_prompts_of_another_length_than_asked(read, severity) -> None:
    requests = [request(n, input_tokens=read) for n in range(10)]
    assert judged(facts(requests, after=counters(10, prompt=read)))["input_length"].severity == severity


def test_a_prompt_length_that_nobody_tells_is_said() -> None:
    found = judged(facts([request(n, input_tokens=None) for n in range(10)]))["input_length"]
    assert found.severity == "note"


@pytest.mark.parametrize(
    ("hits", "cached", "severity"),
    [
        (0, False, "ok"),
        (15, False, "ok"),  # 15 of 1000 are 1.5 %
        (50, False, "warning"),
        (800, False, "failed"),  # guidellm#217: 80 % hits
        (800, True, "note"),
        (50, True, "warning"),  # hits were wanted and did not come
    ],
)
def test_prefix_cache_hits_by_the_engines_counters(hits, cached, severity) -> None:
    told = {"prefix_cache_hit_tokens_total": float(hits), "prefix_cache_query_tokens_total": 1000.0}
    stage = facts(counted=Difference(told, {}, settled=True), input=InputSpec(tokens=100, cached=cached))
    assert judged(stage)["prefix_cache_hits"].severity == severity


def test_prefix_cache_hits_by_what_the_answers_say_where_the_engine_keeps_no_count() -> None:
    requests = [request(n, cached_input_tokens=80) for n in range(10)]
    found = judged(facts(requests))["prefix_cache_hits"]
    assert (found.severity, "80 %" in found.text, "answers" in found.text) == ("failed", True, True)
    untold = [request(n, cached_input_tokens=None) for n in range(10)]
    assert judged(facts(untold))["prefix_cache_hits"].severity == "note"


@pytest.mark.parametrize(("more", "severity"), [(0, "ok"), (2, "ok"), (4, "warning"), (10, "failed"), (-10, "failed")])
def test_engine_and_client_must_count_the_same_tokens(more, severity) -> None:
    # 100 output tokens by the client; 2, 4 and 10 more or less are 2, 4 and 10 %.
    after = counters(10)
    values = dict(after.values) | {"generation_tokens_total": after.values["generation_tokens_total"] + more}
    found = judged(facts(after=replace(after, values=values)))["counters_disagree"]
    assert found.severity == severity


def test_a_counter_printed_with_six_digits_may_be_off_by_its_rounding() -> None:
    # llama.cpp prints 1 234 560 as 1.23456e+06: each of two readings may be off by 5, so 110 of
    # one side and 100 of the other are no gap.
    source = "llamacpp:tokens_predicted_total (6 significant digits)"
    before = EngineCounters(
        kind="llama.cpp", settled=True, values={"generation_tokens_total": 1_234_560.0},
        sources={"generation_tokens_total": source},
    )  # fmt: skip
    after = replace(before, values={"generation_tokens_total": 1_234_670.0})
    assert difference(before, after).uncertain == {"generation_tokens_total": 10.0}
    assert judged(facts(before=before, after=after))["counters_disagree"].severity == "ok"
    exact = {"generation_tokens_total": "exact"}
    stage = facts(before=replace(before, sources=exact), after=replace(after, sources=exact))
    assert judged(stage)["counters_disagree"].severity == "failed"


def test_requests_that_are_not_ours_are_other_load_and_said_once() -> None:
    found = judge_stage(facts(after=counters(15)))
    assert [(each.code, each.severity) for each in found if each.severity == "failed"] == [("other_load", "failed")]


def test_an_engine_that_was_busy_before_the_stage_served_others() -> None:
    busy = counters(running=2.0, settled=False)
    assert judged(facts(before=busy))["other_load"].severity == "failed"


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ({"pid": 9}, "engine_restarted"),
        ({"process_start": 500.0}, "engine_restarted"),
        ({"restart_marker": "b"}, "engine_restarted"),
        ({"values": {"generation_tokens_total": 5.0}}, "engine_restarted"),
        ({"kind": None, "absent": "nothing answers"}, "engine_gone"),
        ({"model_id": "other"}, "engine_changed"),
        ({"arguments": ("vllm", "serve", "n")}, "engine_changed"),
    ],
)
def test_another_life_of_the_engine_fails_the_stage(after, code) -> None:
    before = counters(pid=8, process_start=100.0, restart_marker="a", arguments=("vllm", "serve", "m"))
    now = replace(before, **({"values": counters(10).values} | after))
    found = judged(facts(before=before, after=now))
    assert found[code].severity == "failed"
    assert "counters_disagree" not in found or code == "engine_changed"


def test_an_engine_without_counters_is_said_and_not_held_against_the_run() -> None:
    nothing = EngineCounters(absent="No known engine answers: something else does.")
    found = judged(facts(before=nothing, after=nothing))
    assert found["counters_missing"].severity == "note"
    assert "No known engine" in found["counters_missing"].text


@pytest.mark.parametrize(("by_engine", "severity"), [(190, "ok"), (200, "ok"), (230, "failed"), (150, "failed")])
def test_how_far_the_engine_got_with_a_request_that_was_cut_off_is_not_known(by_engine, severity) -> None:
    # 19 replies of 10 tokens and one that was cut off: 190 to 200 tokens. 230 are 15 % of 190 above, 150 21 % below.
    requests = [request(n) for n in range(20)]
    requests[19] = request(19, status="cancelled", output_tokens=None)
    told = Difference({"generation_tokens_total": by_engine, "prompt_with_cached_tokens_total": 0.0}, {}, True)
    assert judged(facts(requests, window=Window(0, 40), counted=told))["counters_disagree"].severity == severity


def test_tokens_counted_by_chunks_are_a_lower_bound() -> None:
    found = judged(facts([request(n, tokens_source="chunks") for n in range(10)]))
    assert found["tokens_by_chunks"].severity == "warning"
    assert "lower bound" in found["tokens_by_chunks"].text


def test_replies_in_one_chunk() -> None:
    one = {"chunk_seconds": (1.0,), "chunk_tokens": (10,)}
    some = [request(n, **(one if n < 4 else {})) for n in range(10)]
    most = [request(n, **(one if n < 6 else {})) for n in range(10)]
    assert judged(facts(some))["one_chunk_replies"].severity == "note"
    assert judged(facts(most))["one_chunk_replies"].severity == "warning"


@pytest.mark.parametrize(
    ("window", "severity"),
    [(None, "failed"), (Window(0.5, 2.2), "failed"), (Window(0, 9), "warning"), (Window(0, 20), None)],
)
def test_a_steady_window_with_few_requests(window, severity) -> None:
    # Requests of 2 s each: none lies inside 0.5 to 2.2 s, four lie inside 0 to 9 s.
    found = judged(facts(window=window))
    assert (found["window_short"].severity if severity else found.get("window_short")) == severity


def test_p99_of_few_requests_is_explained_once_for_all_stages() -> None:
    shorter = facts([request(n) for n in range(8)], stage_id=4, after=counters(8))
    found = [each for each in judge_run([facts(), shorter], [], "closed") if each.code == "few_for_p99"]
    assert [(each.severity, each.stage_id) for each in found] == [("note", None)]
    assert "In 2 of 2 stages p99 rests on 8 to 10 requests" in found[0].text


def test_an_open_loop_that_did_not_send_what_was_due() -> None:
    # vllm-playground: the loop slept after each reply. Due over 9 s, sent over 18 s.
    late = [request(n, scheduled_seconds=float(n)) for n in range(10)]
    found = judged(facts(late, mode="constant", level=1.0))
    assert found["rate_not_kept"].severity == "failed"
    held = facts(mode="constant", client=replace(IDLE_CLIENT, held_back=3))
    assert judged(held)["rate_not_kept"].severity == "failed"
    assert judged(facts(mode="constant", level=0.5))["rate_not_kept"].severity == "ok"
    assert "rate_not_kept" not in judged(facts())


def test_an_engine_that_falls_behind_an_open_loop() -> None:
    # 20 requests a second for 10 s, each done 0.1 s * number after it came: 67 are done by 10 s of 200 that came.
    slow = [
        request(
            n, scheduled_seconds=n * 0.05, sent_seconds=n * 0.05, done_seconds=n * 0.15, last_token_seconds=n * 0.15
        )
        for n in range(200)
    ]
    found = judged(facts(slow, mode="poisson", level=20.0, window=Window(0, 10), counted=Difference({}, {}, True)))
    assert found["overloaded"].severity == "warning"


def test_a_stage_that_was_stopped_before_its_first_answer_does_not_spoil_the_run() -> None:
    assert judged(facts([]))["errors"].severity == "failed"
    assert judged(facts([], cut_short="the run was stopped"))["errors"].severity == "note"


def test_a_run_that_was_stopped_before_any_answer_is_not_trusted() -> None:
    cut = facts([], cut_short="the run was stopped", after=counters())
    alone = judge_run([cut], judge_stage(cut), "closed")
    assert [each.code for each in alone if each.severity == "failed"] == ["no_stage"]
    measured = facts()
    both = judge_run([measured, cut], [*judge_stage(measured), *judge_stage(cut)], "closed")
    assert [each for each in both if each.severity == "failed"] == []


def test_a_stage_that_was_cut_short_and_a_warm_up_that_did_not_settle_are_said() -> None:
    found = judged(facts(cut_short="a person stopped the run", warmed_up=False))
    assert found["stage_cut_short"].severity == "warning"
    assert found["warmup_unstable"].severity == "warning"


def test_a_run_says_once_what_held_in_every_stage_and_keeps_what_did_not() -> None:
    good, bad = facts(), facts(stage_id=4, level=2.0, client=replace(IDLE_CLIENT, cpu_fraction=0.99))
    judged_all = [*judge_stage(good), *judge_stage(bad)]
    found = judge_run([good, bad], judged_all, "closed")
    errors = [each for each in found if each.code == "errors"]
    assert [(each.severity, each.stage_id) for each in errors] == [("ok", None)]
    assert "2 stages" in errors[0].text
    busier = facts(stage_id=5, level=4.0, client=replace(IDLE_CLIENT, cpu_fraction=0.5))
    both = judge_run([busier, good], [*judge_stage(busier), *judge_stage(good)], "closed")
    assert "at most 50 % of a core" in next(each.text for each in both if each.code == "client_saturated")
    assert [each.stage_id for each in found if each.code == "client_saturated"] == [4]
    assert not trusted(found)
    assert untrusted_stages(found, [3, 4]) == {4}


def test_a_closed_run_without_a_single_user_says_so() -> None:
    stage = facts(level=4.0)
    found = {each.code: each for each in judge_run([stage], judge_stage(stage), "closed")}
    assert found["level_1_missing"].severity == "warning"
    nothing = judge_run([], [], "closed")
    assert (nothing[0].severity, untrusted_stages(nothing, [0, 1])) == ("failed", {0, 1})


def test_endpoints_that_did_not_do_the_same_work() -> None:
    # The same prompts are 100 tokens for one tokenizer and 130 for the other.
    other = facts([request(n, input_tokens=130) for n in range(10)], stage_id=4, label="llama.cpp")
    found = {each.code: each for each in judge_run([facts(), other], [], "closed")}
    assert found["unequal_work"].severity == "warning"
    assert "130 prompt tokens a request at llama.cpp, 100 at vLLM" in found["unequal_work"].text
