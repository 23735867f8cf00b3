"""
Public reports of wrong benchmark numbers that were wrong about the load: prompts, lengths, schedule, the client itself.

As in test_wrong_tokens: real worker, scripted server, numbers of the list of known failures.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.engine_server import PAYLOADS
from tests.support.loadtest_worker import ROOT, Told, read, run, spec
from tests.support.scripted_server import DONE, Call, Reply, ScriptedServer, answer, stream, text, usage, usage_chunk


def measured_only(reply: Callable[[Call], Reply]) -> Callable[[Call], Reply]:
    return lambda call: reply(call) if call.max_tokens > 2 else answer(call)


def beginnings(server: ScriptedServer) -> list[str]:
    """The first words of every prompt that the server got."""
    return [" ".join(call.prompt.split()[:4]) for call in server.calls]


def test_8_no_prompt_begins_like_another_even_with_the_same_seed(tmp_path: Path) -> None:
    # vllm#54227: the same seed sent the prompts of the run before, and the prefix cache answered (TTFT 49 times lower).
    with ScriptedServer() as server:
        for _ in range(2):
            run(spec(server.url, seed=7, warmup={"most_batches": 2}), tmp_path)
        seen = beginnings(server)
        first, second = [call.prompt.split() for call in server.measured(5)[2:10]], server.measured(5)[12:]
    assert len(seen) == len(set(seen)) == 2 * (2 + 2 + 8)
    # But for its beginning of seven words, the work is the same.
    assert [words[7:] for words in first] == [call.prompt.split()[7:] for call in second]


def test_8_prompts_from_a_prefix_cache_are_told_against_the_run(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        hits = usage(call.prompt_tokens, 5, cached_tokens=call.prompt_tokens // 2)
        return stream(*[text("w")] * 5, usage_chunk(hits), DONE)

    with ScriptedServer(measured_only(reply)) as server:
        told = run(spec(server.url), tmp_path)
    assert (told.stage.cached_input_tokens, told.stage.input_tokens) == (80, 160)
    assert told.severities("prefix_cache_hits") == {"failed"}


def test_8_hits_are_had_where_they_are_wanted(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        run(spec(server.url, input={"tokens": 41, "cached": True}), tmp_path)
        prompts = [call.prompt.split() for call in server.measured()]
    # Nine tenths of 40 words are shared, the rest is each one's own.
    assert len({tuple(words[:36]) for words in prompts}) == 1
    assert len({tuple(words[36:]) for words in prompts}) == len(prompts) == 8


def test_8_llama_cpp_is_asked_not_to_use_its_cache(tmp_path: Path) -> None:
    models = json.dumps({"data": [{"id": "m", "owned_by": "llamacpp", "meta": {}}]})
    gets = {"/props": (PAYLOADS / "llamacpp_0.6.0_props.json").read_text(), "/v1/models": models}
    with ScriptedServer(gets=gets) as server:
        told = run(spec(server.url), tmp_path)
        bodies = [call.body for call in server.measured()]
    assert told.stage.engine == "llama.cpp"
    assert all(body["cache_prompt"] is False and body["ignore_eos"] is True for body in bodies)


def test_9_warm_up_has_prompts_of_its_own(tmp_path: Path) -> None:
    # vllm bench serve warms up with the first measured prompt.
    with ScriptedServer() as server:
        told = run(spec(server.url, levels=[1, 4], warmup={"most_batches": 3}, output={"tokens": 40}), tmp_path)
        seen, lengths = beginnings(server), Counter(call.max_tokens for call in server.calls)
    assert len(seen) == len(set(seen))
    warm_up = [json.loads(stage.details or "")["warm_up"]["requests"] for stage in told.stages]
    # Warm-up requests ask for 32 tokens, measured ones for 40; eight of those a stage.
    assert (lengths[32], lengths[40]) == (sum(warm_up), 16)
    assert sum(stage.requests or 0 for stage in told.stages) == 16


def test_10_slow_first_requests_are_warmed_away(tmp_path: Path) -> None:
    # vllm#16858, sglang#28706: kernels are compiled while the first requests wait.
    slow = [0.8, 0.4, 0.2]

    def reply(call: Call) -> Reply:
        sent = len(server.measured())
        return answer(call, first=slow[sent - 1] if sent <= len(slow) else 0.0, each=0.02)

    with ScriptedServer(measured_only(reply)) as server:
        told = run(spec(server.url, warmup={"most_batches": 20, "stable_fraction": 0.3}), tmp_path)
    warm_up = told.details()["warm_up"]
    assert warm_up["stable"] is True
    assert warm_up["requests"] >= len(slow) + 2
    assert (told.stage.ttft_p99_seconds or 9) < slow[-1]


def test_10_a_speed_that_still_changes_is_told(tmp_path: Path) -> None:
    pauses = {n: 0.01 * 2**n for n in range(4)}

    def reply(call: Call) -> Reply:
        return answer(call, each=pauses.get(len(server.measured()) - 1, 0.0))

    with ScriptedServer(measured_only(reply)) as server:
        told = run(spec(server.url, warmup={"most_batches": 3}), tmp_path)
    assert told.details()["warm_up"]["stable"] is False
    assert told.severities("warmup_unstable") == {"warning"}


def test_11_latency_counts_from_when_a_request_was_due(tmp_path: Path) -> None:
    # vllm#54101: reported 506 ms, true 1932 ms, because requests waited in the client unseen.
    taking, rate = 0.2, 20.0

    def reply(call: Call) -> Reply:
        return answer(call, first=taking)

    with ScriptedServer(measured_only(reply)) as server:
        told = run(spec(server.url, mode="constant", levels=[rate], max_in_flight=1, requests=10), tmp_path)
        calls = server.measured()
    # One at a time: the last of ten, due after 9/20 s, ends after ten answers by the server's own clock.
    last = calls[-1].sent_at[-1] - calls[0].received_at
    assert told.requests[-1].from_schedule_seconds == pytest.approx(last - 9 / rate, rel=0.2)
    assert taking <= (told.stage.e2e_p50_seconds or 0) < (told.requests[-1].from_schedule_seconds or 0) / 2
    assert told.details()["client"]["held_back"] >= 8
    assert told.severities("offered_rate") or told.severities("rate_not_kept"), [j.code for j in told.judgements]


def test_12_a_client_that_may_not_open_its_connections_refuses(tmp_path: Path) -> None:
    # guidellm#487, genai-bench#56: a limit of the client looked like one of the engine.
    with ScriptedServer() as server:
        given = json.dumps(spec(server.url, levels=[200], requests=200))
        done = subprocess.run(
            [sys.executable, "-m", "loadtest.worker"],
            input=given,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150)),
            check=True,
        )
    told = read(done.stdout)
    assert told.ended is not None
    assert told.ended.state == "failed"
    assert "ulimit -n" in (told.ended.detail or "")
    assert told.stages == []


def test_12_the_client_says_how_it_fared(tmp_path: Path) -> None:
    with ScriptedServer(lambda call: answer(call, each=0.01)) as server:
        told = run(spec(server.url, levels=[8], requests=32), tmp_path)
    client = json.loads(told.stages[-1].details or "")["client"]
    assert client["connections"] == 8
    assert 0 < client["cpu_fraction"] < 1
    assert client["lag_p99_seconds"] <= client["lag_max_seconds"]
    assert client["ceiling_chunks_per_second"] > client["chunks_per_second"] > 0
    assert told.ended is not None
    assert told.ended.client is not None
    assert told.ended.client["connections"] == 8


def test_13_answers_that_end_early_fail_the_run(tmp_path: Path) -> None:
    # vllm#9349, TGI#1944, aprender#2818: ignore_eos was accepted and ignored.
    with ScriptedServer(measured_only(lambda call: answer(call, tokens=3))) as server:
        told = run(spec(server.url, output={"tokens": 8}), tmp_path)
        assert all(call.body["ignore_eos"] is True for call in server.measured())
    assert told.stage.output_tokens == 8 * 3
    assert told.severities("output_length") == {"failed"}


def test_13_a_server_that_refuses_flags_is_asked_without_them(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        for name in ("min_tokens", "ignore_eos"):
            if name in call.body:
                return Reply([(0.0, json.dumps({"error": {"message": f"unknown field {name}"}}).encode())], 400)
        return answer(call)

    with ScriptedServer(reply) as server:
        told = run(spec(server.url), tmp_path)
    assert told.stage.succeeded == 8
    assert "refuses ignore_eos" in told.sentences("not_as_asked")
    assert told.details()["asked_of_server"] == ["include_usage", "temperature"]


def test_14_prompts_have_the_length_asked_for_as_the_server_counts(tmp_path: Path) -> None:
    # vllm#17408, sglang#15732 (92 % wrong): this one counts three tokens a word, and 30 for its template.
    def reply(call: Call) -> Reply:
        counted = usage(3 * len(call.prompt.split()) + 30, call.max_tokens)
        return stream(*[text("w")] * call.max_tokens, usage_chunk(counted), DONE)

    with ScriptedServer(reply) as server:
        told = run(spec(server.url, input={"tokens": 300}), tmp_path)
        assert all(len(call.prompt.split()) == 90 for call in server.measured())  # (300 - 30) / 3
    assert [request.input_tokens for request in told.requests] == [300] * 8
    assert told.severities("input_length") == {"ok"}


def test_14_prompts_of_another_length_are_told(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        return stream(*[text("w")] * 5, usage_chunk(usage(2 * call.prompt_tokens, 5)), DONE)

    with ScriptedServer(measured_only(reply)) as server:
        told = run(spec(server.url), tmp_path)
    assert told.severities("input_length") == {"failed"}
    assert told.stage.input_tokens == 8 * 40


def test_16_lengths_lie_between_the_bounds_and_are_kept(tmp_path: Path) -> None:
    # vllm#16126: the meaning of --random-range-ratio was turned round.
    lengths = {"distribution": "uniform", "tokens_min": 30, "tokens_max": 60}
    with ScriptedServer() as server:
        told = run(spec(server.url, input=lengths, requests=40), tmp_path)
        sent = sorted(call.prompt_tokens for call in server.measured())
    assert sorted(request.input_tokens or 0 for request in told.requests) == sent
    assert sent[0] >= 30
    assert sent[-1] <= 60
    assert len(set(sent)) > 10


def test_19_requests_leave_by_the_clock_and_not_after_an_answer(tmp_path: Path) -> None:
    # vllm-playground slept after each reply and called it a rate.
    with ScriptedServer(measured_only(lambda call: answer(call, first=2.5))) as server:
        told = run(spec(server.url, mode="constant", levels=[40], requests=20), tmp_path)
        calls = server.measured()
    # 40 a second for 20 requests: the last is due after 0.475 s, long before the first answer begins after 2.5 s.
    assert [request.scheduled_seconds for request in told.requests] == pytest.approx([n / 40 for n in range(20)])
    assert all((r.sent_seconds or 0) >= (r.scheduled_seconds or 0) - 0.002 for r in told.requests)
    assert max(call.received_at for call in calls) < min(call.sent_at[0] for call in calls)
    assert told.stage.offered_requests_per_second == 40


def test_19_poisson_arrivals_have_the_rate_asked_for(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        told = run(spec(server.url, mode="poisson", levels=[200], requests=300, seed=1), tmp_path)
    due = [request.scheduled_seconds or 0.0 for request in told.requests]
    gaps = [later - earlier for earlier, later in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    # An exponential distribution has its mean as standard deviation; 299 gaps give both within a fifth (4 sigma).
    assert mean == pytest.approx(1 / 200, rel=0.24)
    assert deviation == pytest.approx(mean, rel=0.3)


def vllm_gets(
    server: Callable[[], ScriptedServer], counted: Callable[[int], int]
) -> dict[str, str | Callable[[], str]]:
    """What a vLLM answers to a collector. Its counter of output tokens moves by `counted` of what was produced."""
    metrics = (PAYLOADS / "vllm_0.32.0_cpu_real.prom").read_text()

    def now() -> str:
        calls = server().calls
        moved = {
            "vllm:generation_tokens_total": counted(sum(call.max_tokens for call in calls)),
            "vllm:prompt_tokens_total": sum(call.prompt_tokens for call in calls),
        }
        lines = metrics.splitlines()
        for number, line in enumerate(lines):
            name, _, value = line.rpartition(" ")
            more = moved.get(name.partition("{")[0])
            if more is not None and not line.startswith("#"):
                lines[number] = f"{name} {float(value) + more}"
        return "\n".join(lines) + "\n"

    return {
        "/version": (PAYLOADS / "vllm_0.32.0_version_real.json").read_text(),
        "/v1/models": (PAYLOADS / "vllm_0.32.0_v1_models_real.json").read_text(),
        "/health": "",
        "/metrics": now,
    }


@pytest.mark.parametrize(
    ("counted", "severity"),
    [(lambda produced: produced, "ok"), (lambda produced: produced * 2, "failed")],
    ids=["the same", "twice as many"],
)
def test_20_the_engines_own_counters_are_held_against_the_client(
    tmp_path: Path, counted: Callable[[int], int], severity: str
) -> None:
    # vllm#13031, llama.cpp#27364: engine and client disagree, and only one of them was shown.
    with ScriptedServer(gets=vllm_gets(lambda: server, counted)) as server:
        told = run(spec(server.url), tmp_path)
    assert told.stage.engine == "vllm"
    assert json.loads(told.stage.counters or "")["difference"]["generation_tokens_total"] == counted(40)
    assert told.severities("counters_disagree") == {severity}


def test_22_endpoints_that_do_unequal_work_are_not_compared_silently(tmp_path: Path) -> None:
    # club-3090#64: two configurations that do not do the same work were called a comparison.
    def reply(call: Call) -> Reply:
        return stream(*[text("w")] * 5, usage_chunk(usage(3 * call.prompt_tokens, 5)), DONE)

    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one two three four five six seven eight nine ten"}\n')
    with ScriptedServer() as one, ScriptedServer(reply) as other:
        given = spec(one.url, input={"kind": "file", "path": str(prompts)})
        given["endpoints"].append({"url": other.url, "label": "other"})
        told = run(given, tmp_path)
    assert told.severities("unequal_work") == {"warning"}


def test_23_a_sweep_has_a_single_user_whether_asked_for_or_not(tmp_path: Path) -> None:
    # Tanguille/cluster#3258: four users together got less than one alone, and nobody had measured one.
    with ScriptedServer() as server:
        told = run(spec(server.url, levels=[4]), tmp_path)
    assert [stage.concurrency for stage in told.stages] == [1, 4]
    assert told.severities("level_1_added") == {"note"}


def test_endpoints_take_turns_a_b_b_a(tmp_path: Path) -> None:
    with ScriptedServer() as one, ScriptedServer() as other:
        given = spec(one.url, levels=[1, 2], repeats=2)
        given["endpoints"] = [{"url": one.url, "label": "A"}, {"url": other.url, "label": "B"}]
        told = run(given, tmp_path)
    order = [(stage.repeat, stage.concurrency, stage.label) for stage in told.stages]
    assert [label for _, _, label in order] == ["A", "B", "B", "A", "B", "A", "A", "B"]
    assert [(repeat, users) for repeat, users, _ in order] == [(0, 1)] * 2 + [(0, 2)] * 2 + [(1, 1)] * 2 + [(1, 2)] * 2


def test_the_steady_window_has_all_users_busy(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        # of 12 requests of the first stage and 12 of the second the last two take long
        return answer(call, first=2.0 if len(server.measured()) > 22 else 0.05, each=0.01)

    with ScriptedServer(measured_only(reply)) as server:
        told: Told = run(spec(server.url, levels=[1, 3], requests=12), tmp_path)
    stage = told.stages[-1]
    requests = [request for request in told.requests if request.stage_id == stage.stage_id]
    assert stage.window_begin is not None
    assert stage.window_end is not None
    begin = (stage.window_begin - stage.ts).total_seconds()
    end = (stage.window_end - stage.ts).total_seconds()
    # It begins when the third user has sent, and ends when the first user finds no thirteenth request to send.
    assert begin == pytest.approx(sorted(request.sent_seconds or 0 for request in requests)[2], abs=1e-5)
    done = sorted(request.done_seconds or 0 for request in requests)
    assert done[12 - 3] - 1e-5 <= end < done[12 - 2]
    assert sum(request.in_window for request in requests) < 12
