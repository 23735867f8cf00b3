"""
llama-server against recorded and source-derived bodies (tests/fixtures/README.md says which is which).
Expected numbers were read by hand from the file that each test names; the rules are those of
tools/server/server-task.cpp, server-context.cpp and common/arg.cpp of llama.cpp.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.engines.base import Endpoint, EngineReading
from collectors.engines.llamacpp import LlamaCpp
from collectors.http import ConnectFailedError, HttpClient, TimedOutError
from settings import CollectorSettings
from store.model import QUANTITIES, EngineState, Offer
from tests.support.engine_server import PAYLOADS, Answer, EngineServer, document, payload
from tests.support.wait import free_port

LLAMA = LlamaCpp()
COMMAND = ("/usr/bin/llama-server", "-m", "/models/tiny.gguf", "--metrics")  # no -np: four slots share one cache
SLEEPER = (*COMMAND, "--sleep-idle-seconds", "300")
PROPS = json.loads((PAYLOADS / "llamacpp_0.6.0_props.json").read_text())
MARKER = {"Process-Start-Time-Unix": "3475612689"}
TEXT = "text/plain; version=0.0.4"


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


@pytest.fixture
def impatient() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as client:
        yield client


def serve(metrics: str = "idle", slots: str = "idle_after_one", **props: Any) -> EngineServer:
    return EngineServer(
        {
            "/props": document(PROPS | props),
            "/v1/models": payload("llamacpp_0.6.0_v1_models.json"),
            "/metrics": payload(f"llamacpp_0.6.0_{metrics}.prom", TEXT, headers=MARKER),
            "/slots": payload(f"llamacpp_0.6.0_slots_{slots}.json"),
        },
        server="llama.cpp",
    )


def at(server: EngineServer, arguments: tuple[str, ...] = COMMAND, **fields: Any) -> Endpoint:
    return Endpoint(url=server.url, found_by="test", arguments=arguments, **fields)


def sample(
    http: HttpClient, server: EngineServer, arguments: tuple[str, ...] = COMMAND, **fields: Any
) -> EngineReading:
    with server:
        return LLAMA.sample(at(server, arguments, **fields), http, histograms=True)


def values(reading: EngineReading) -> dict[str, float | None]:
    return {name: value.value for name, value in reading.readings.items()}


def assert_complete(reading: EngineReading) -> None:
    """Each canonical quantity is in exactly one of readings and absences, and absences say why."""
    assert set(reading.readings) | set(reading.absences) == {quantity.name for quantity in QUANTITIES}
    assert not set(reading.readings) & set(reading.absences)
    assert all(absence.reason.endswith(".") for absence in reading.absences.values())


def test_identity(http: HttpClient) -> None:
    # llamacpp_0.6.0_props.json and llamacpp_0.6.0_v1_models.json
    with serve() as server:
        identity = LLAMA.identify(at(server, (*COMMAND, "-ngl", "99", "-ctk", "q8_0")), http)
    assert identity is not None
    assert (identity.kind, identity.state, identity.version) == ("llama.cpp", EngineState.READY, "b0-unknown")
    assert (identity.model_id, identity.model_path) == ("tiny-random", "/models/tiny.gguf")
    assert (identity.quantization, identity.max_context_tokens, identity.slots) == ("all F32", 4096, 4)
    assert identity.facts == {
        "weights_bytes": 16712960,
        "parameters": 4178240,
        "training_context_tokens": 4096,
        "metrics_enabled": True,
        "slots_enabled": True,
        "gpu_layers": 99,
        "cache_type_k": "q8_0",
        "kv_unified": True,
    }


def test_a_path_as_model_name_is_shown_by_its_last_part(http: HttpClient) -> None:
    # Without --alias the server names the model by the path it was given (0.6.0-dev).
    with serve(model_alias="/models/big/Model-Q4_K_M.gguf") as server:
        identity = LLAMA.identify(at(server), http)
    assert identity is not None
    assert identity.model_id == "Model-Q4_K_M.gguf"


def test_identity_keeps_no_template_and_no_parameters(http: HttpClient) -> None:
    with serve(chat_template="{{ SECRET TEMPLATE }}") as server:
        identity = LLAMA.identify(at(server), http)
    assert "TEMPLATE" not in repr(identity)
    assert "shortened" not in repr(identity)


def test_busy_server_before_its_request_ends(http: HttpClient) -> None:
    # llamacpp_0.6.0_busy.prom and _slots_one_busy.json: one request at its 228th token, none settled
    reading = sample(http, serve("busy", "one_busy"))
    assert reading.state is EngineState.READY
    assert values(reading) == {
        "generation_tokens_total": 0,
        "generation_live_tokens_total": 228,
        "prompt_tokens_total": 491,
        "prompt_with_cached_tokens_total": 491,
        "prefix_cache_query_tokens_total": 491,
        "prefix_cache_hit_tokens_total": 0,
        "generation_seconds_total": 0,
        "prompt_seconds_total": 0.019694,
        "requests_running": 1,
        "requests_waiting": 0,
        "kv_used_fraction": 719 / 4096,
        "kv_capacity_tokens": 4096,
    }
    assert "estimated" in reading.readings["kv_used_fraction"].source
    assert "slot-decodes" in reading.readings["generation_live_tokens_total"].source
    assert reading.restart_marker == "3475612689"
    assert_complete(reading)


def test_settled_counters_agree_with_live_ones(http: HttpClient) -> None:
    # llamacpp_0.6.0_after.prom: the same request ended, 3000 tokens
    got = values(sample(http, serve("after")))
    assert (got["generation_tokens_total"], got["generation_live_tokens_total"]) == (3000, 3000)
    assert (got["generation_seconds_total"], got["kv_used_fraction"]) == (16.0533, 0)


def test_counters_agree_with_what_the_client_was_told(http: HttpClient) -> None:
    """
    llamacpp_0.6.0_completion_timings.json is the answer to the request after which _after.prom was read. The server
    adds the time of its prompt in whole batches, 19.7 ms of the 20.7 ms that the client was told.
    """
    told = json.loads((PAYLOADS / "llamacpp_0.6.0_completion_timings.json").read_text())["timings"]
    got = values(sample(http, serve("after")))
    assert got["generation_tokens_total"] == told["predicted_n"]
    assert got["prompt_tokens_total"] == told["prompt_n"]
    assert got["generation_seconds_total"] == pytest.approx(told["predicted_ms"] / 1000, rel=1e-5)
    assert got["prompt_seconds_total"] == pytest.approx(told["prompt_ms"] / 1000, rel=0.06)


def test_a_build_never_seen_gives_what_it_has_and_names_what_was_expected(http: HttpClient) -> None:
    body = (PAYLOADS / "llamacpp_0.6.0_busy.prom").read_text().replace("requests_deferred", "requests_parked")
    server = serve("busy", "one_busy")
    server.answers["/metrics"] = Answer(body=body.encode(), content_type=TEXT)
    reading = sample(http, server)
    assert values(reading)["prompt_tokens_total"] == 491
    assert reading.absences["requests_waiting"].offer is Offer.UNKNOWN
    assert "llamacpp:requests_deferred" in reading.absences["requests_waiting"].reason
    assert_complete(reading)


def test_queue(http: HttpClient) -> None:
    # llamacpp_0.6.0_queued.prom: 7 requests on 4 slots; 3443 decodes x 1.13041 = 3892.0016
    got = values(sample(http, serve("queued", "one_busy")))
    assert (got["requests_running"], got["requests_waiting"]) == (4, 3)
    assert got["generation_live_tokens_total"] == 3892
    assert (got["prompt_tokens_total"], got["prefix_cache_hit_tokens_total"]) == (505, 492)
    assert got["prompt_with_cached_tokens_total"] == 997


def test_idle(http: HttpClient) -> None:
    got = values(sample(http, serve("idle")))
    assert set(got.values()) == {0, 4096}
    assert got["kv_capacity_tokens"] == 4096


def test_six_digits_are_said_from_a_million_on(http: HttpClient) -> None:
    # llamacpp_0.6.0_big_counters.prom: prompt_tokens_total 1.00301e+06; 659 decodes x 3.04704 = 2007.999
    reading = sample(http, serve("big_counters"))
    assert reading.readings["prompt_tokens_total"].value == 1_003_010
    assert "6 significant digits" in reading.readings["prompt_tokens_total"].source
    assert "digits" not in reading.readings["generation_tokens_total"].source
    assert reading.readings["generation_live_tokens_total"].value == 2008


def test_live_counter_ends_where_rounding_drowns_it(http: HttpClient) -> None:
    # 6 digits of 1.23457e+07 x 1.5 leave steps of about 100 tokens
    body = (PAYLOADS / "llamacpp_0.6.0_busy.prom").read_text()
    body = body.replace("n_decode_total 228", "n_decode_total 1.23457e+07").replace("per_decode 1", "per_decode 1.5")
    server = serve("busy", "one_busy")
    server.answers["/metrics"] = Answer(body=body.encode(), content_type=TEXT)
    assert "10 million" in sample(http, server).absences["generation_live_tokens_total"].reason


def test_throughput_gauges_are_never_used(http: HttpClient) -> None:
    # They mean the window since anybody's previous scrape; the file has 1110.77 in prompt_tokens_seconds.
    reading = sample(http, serve("queued", "one_busy"))
    assert 1110.77 not in values(reading).values()
    assert not any("tokens_seconds " in f"{value.source} " for value in reading.readings.values())


@pytest.mark.parametrize(
    ("arguments", "environment", "slots", "expected"),
    [
        (COMMAND, {}, 4, 4096),  # no -np: four slots of 4096 share 4096 (engines' live check)
        ((*COMMAND, "-np", "-1"), {}, 4, 4096),
        ((*COMMAND, "-np", "4"), {}, 4, 4 * 4096),
        ((*COMMAND, "--parallel=4", "--kv-unified"), {}, 4, 4096),
        ((*COMMAND, "--no-kv-unified"), {}, 4, 4 * 4096),
        ((*COMMAND, "--kv-unified-per-slot", "1024"), {}, 4, 4 * 1024),
        (COMMAND, {"LLAMA_ARG_N_PARALLEL": "4"}, 4, 4 * 4096),
        (COMMAND, {"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_KV_UNIFIED": "1"}, 4, 4096),
        ((), {}, 1, 4096),
        ((), {}, 4, None),  # unified or not is exposed by no endpoint
    ],
)
def test_capacity(http: HttpClient, arguments, environment, slots: int, expected: float | None) -> None:
    all_slots = json.loads((PAYLOADS / "llamacpp_0.6.0_slots_idle_after_one.json").read_text())
    server = serve(total_slots=slots)
    server.answers["/slots"] = document(all_slots[:slots])
    reading = sample(http, server, arguments, process_environment=environment)
    assert values(reading).get("kv_capacity_tokens") == expected
    if expected is None:
        assert {"kv_capacity_tokens", "kv_used_fraction"} <= set(reading.absences)
    assert_complete(reading)


def test_slots_holding_more_than_the_capacity_refute_it(http: HttpClient) -> None:
    slots = json.loads((PAYLOADS / "llamacpp_0.6.0_slots_one_busy.json").read_text())
    slots[3]["n_prompt_tokens"] = 5000
    server = serve("busy")
    server.answers["/slots"] = document(slots)
    assert "more tokens" in sample(http, server).absences["kv_used_fraction"].reason


def test_speculative_decoding_has_no_live_counter(http: HttpClient) -> None:
    slots = json.loads((PAYLOADS / "llamacpp_0.6.0_slots_one_busy.json").read_text())
    for slot in slots:
        slot["speculative"] = True
    server = serve("busy")
    server.answers["/slots"] = document(slots)
    reading = sample(http, server)
    assert "speculative" in reading.absences["generation_live_tokens_total"].reason
    assert_complete(reading)


def test_build_of_may_2025(http: HttpClient) -> None:
    # llamacpp_2025-05_8733e0cf6_kv.prom and _slots_old_shape.json: KV gauge, counter-typed means, prompts in /slots
    server = serve()
    server.answers["/metrics"] = payload("llamacpp_2025-05_8733e0cf6_kv.prom", TEXT)
    server.answers["/slots"] = payload("llamacpp_2025-05_slots_old_shape.json")
    reading = sample(http, server, (*COMMAND, "-np", "2"))
    got = values(reading)
    assert (got["generation_tokens_total"], got["prompt_tokens_total"]) == (412688, 1_843_210)
    assert (got["kv_used_fraction"], got["kv_capacity_tokens"]) == (0.187439, 2 * 8192)
    assert got["generation_live_tokens_total"] == 453159  # 401933 x 1.12745 = 453159.36
    assert (got["requests_running"], got["generation_seconds_total"]) == (2, 9120.08)
    assert "August 2026" in (reading.absences["prefix_cache_hit_tokens_total"].remedy or "")
    assert "LEAKS" not in repr(reading)
    assert_complete(reading)


def test_slots_of_old_shape_without_a_kv_gauge(http: HttpClient) -> None:
    server = serve("busy")
    server.answers["/slots"] = payload("llamacpp_2025-05_slots_old_shape.json")
    reading = sample(http, server)
    assert "how many tokens" in reading.absences["kv_used_fraction"].reason


def test_build_of_2024_before_its_first_decode(http: HttpClient) -> None:
    # llamacpp_2024-12_nan.prom: n_busy_slots_per_decode is -nan until something was decoded
    server = serve()
    server.answers["/metrics"] = payload("llamacpp_2024-12_nan.prom", TEXT)
    reading = sample(http, server)
    assert values(reading)["generation_live_tokens_total"] == 0
    assert values(reading)["kv_used_fraction"] == 0
    assert_complete(reading)


def test_json_quoted_metrics(http: HttpClient) -> None:
    # llamacpp_2025-11_json_quoted.txt: builds b7010 to pull request 17386
    server = serve()
    server.answers["/metrics"] = payload("llamacpp_2025-11_json_quoted.txt", "application/json; charset=utf-8")
    got = values(sample(http, server))
    assert (got["generation_tokens_total"], got["requests_running"]) == (412688, 2)


def test_metrics_switched_off(http: HttpClient) -> None:
    # llamacpp_0.6.0_501_metrics_disabled.json; /slots still tells what runs and what the cache holds
    server = serve(slots="one_busy")
    server.answers["/metrics"] = payload("llamacpp_0.6.0_501_metrics_disabled.json", status=501)
    reading = sample(http, server)
    assert reading.state is EngineState.METRICS_DISABLED
    assert "--metrics" in (reading.detail or "")
    assert values(reading) == {"requests_running": 1, "kv_capacity_tokens": 4096, "kv_used_fraction": 719 / 4096}
    assert reading.readings["requests_running"].source == "/slots is_processing"
    assert reading.absences["generation_tokens_total"].offer is Offer.DISABLED
    assert "--metrics" in (reading.absences["generation_tokens_total"].remedy or "")
    assert reading.absences["ttft_seconds"].offer is Offer.NOT_OFFERED
    assert_complete(reading)


def test_metrics_switched_off_is_seen_when_identifying(http: HttpClient) -> None:
    with serve(endpoint_metrics=False) as server:
        identity = LLAMA.identify(at(server), http)
    assert identity is not None
    assert identity.state is EngineState.METRICS_DISABLED


def test_slots_switched_off(http: HttpClient) -> None:
    server = serve("busy")
    server.answers["/slots"] = payload("llamacpp_0.6.0_501_slots_disabled.json", status=501)
    reading = sample(http, server)
    assert reading.state is EngineState.READY
    assert values(reading)["generation_live_tokens_total"] == 228
    assert reading.absences["kv_used_fraction"].offer is Offer.DISABLED
    assert "--slots" in (reading.absences["kv_used_fraction"].remedy or "")
    assert_complete(reading)


def test_slots_that_hang_do_not_spoil_the_metrics(impatient: HttpClient) -> None:
    server = serve("busy")
    server.answers["/slots"] = Answer(behaviour="hang")
    reading = sample(impatient, server)
    assert values(reading)["prompt_tokens_total"] == 491
    assert reading.absences["kv_capacity_tokens"].offer is Offer.UNKNOWN


def all_paths(answer: Answer, server: str = "llama.cpp") -> EngineServer:
    return EngineServer(dict.fromkeys(("/props", "/v1/models", "/metrics", "/slots"), answer), server=server)


@pytest.mark.parametrize("arguments", [COMMAND, ()])
def test_loading(http: HttpClient, arguments: tuple[str, ...]) -> None:
    with all_paths(payload("llamacpp_0.6.0_503_loading.json", status=503)) as server:
        identity = LLAMA.identify(at(server, arguments), http)
        reading = LLAMA.sample(at(server, arguments), http, histograms=True)
    assert identity is not None
    assert identity.state is reading.state is EngineState.LOADING
    assert "Loading model" in (reading.detail or "")
    assert_complete(reading)


@pytest.mark.parametrize("arguments", [COMMAND, ()])
def test_key_is_missing(http: HttpClient, arguments: tuple[str, ...]) -> None:
    with all_paths(payload("llamacpp_0.6.0_401_no_key.json", status=401)) as server:
        identity = LLAMA.identify(at(server, arguments), http)
        reading = LLAMA.sample(at(server, arguments), http, histograms=True)
    assert identity is not None
    assert identity.state is reading.state is EngineState.UNAUTHORISED
    assert "api_key_env" in (reading.detail or "")
    assert_complete(reading)


def test_key_is_sent(http: HttpClient) -> None:
    with serve() as server:
        reading = LLAMA.sample(at(server, api_key="sesame"), http, histograms=True)
        assert {headers["authorization"] for _, _, headers in server.requests} == {"Bearer sesame"}
    assert "sesame" not in repr(reading)


@pytest.mark.parametrize("answer", [document({"error": "no"}, status=401), Answer(503), Answer(404)])
def test_strangers_that_refuse_are_not_llama_cpp(http: HttpClient, answer: Answer) -> None:
    with all_paths(answer, server="nginx") as server:
        assert LLAMA.identify(at(server, ()), http) is None


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html></html>", content_type="text/html"),
        document({"props": 1}),
        document([]),
        Answer(body=b"{" * 100_000),
        Answer(body=b"\xff\xfe"),
    ],
)
def test_strangers_that_answer_are_not_llama_cpp(http: HttpClient, answer: Answer) -> None:
    with all_paths(answer, server="nginx") as server:
        assert LLAMA.identify(at(server, ()), http) is None


# What a GET may wake ---------------------------------------------------------------------------


def test_sleeping_server_is_left_asleep(http: HttpClient) -> None:
    # /slots always wakes the model, /metrics did before pull request 27376; b0-unknown may be older
    with serve(is_sleeping=True) as server:
        for arguments in (SLEEPER, ()):
            reading = LLAMA.sample(at(server, arguments), http, histograms=True)
            assert reading.state is EngineState.SLEEPING
            assert_complete(reading)
        assert set(server.paths) == {"/props"}
        identity = LLAMA.identify(at(server, SLEEPER), http)
        assert identity is not None
        assert identity.state is EngineState.SLEEPING
        assert set(server.paths) == {"/props", "/v1/models"}


def test_sleeping_server_of_a_build_that_sleeps_on_keeps_its_counters(http: HttpClient) -> None:
    # llamacpp_0.6.0_sleeping.prom was answered by a sleeping b11434
    with serve("sleeping", is_sleeping=True, build_info="b11434-abcdef0") as server:
        reading = LLAMA.sample(at(server, SLEEPER), http, histograms=True)
        assert server.paths == ["/props", "/metrics"]
    assert reading.state is EngineState.SLEEPING
    assert values(reading)["generation_tokens_total"] == 50
    assert_complete(reading)


def test_idle_server_that_will_sleep_is_not_kept_awake(http: HttpClient) -> None:
    with serve("after", build_info="b11500-abcdef0") as server:
        reading = LLAMA.sample(at(server, SLEEPER), http, histograms=True)
        assert server.paths == ["/props", "/metrics"]
    got = values(reading)
    assert (got["kv_used_fraction"], got["kv_capacity_tokens"], got["generation_tokens_total"]) == (0, 4096, 3000)
    assert_complete(reading)


def test_working_server_that_will_sleep_is_read_whole(http: HttpClient) -> None:
    with serve("busy", "one_busy", build_info="b11500-abcdef0") as server:
        reading = LLAMA.sample(at(server, SLEEPER), http, histograms=True)
        assert server.paths == ["/props", "/metrics", "/slots"]
    assert values(reading)["kv_used_fraction"] == 719 / 4096


@pytest.mark.parametrize("environment", [{}, {"LLAMA_ARG_SLEEP_IDLE_SECONDS": "60"}])
def test_old_build_that_will_sleep_is_not_read(http: HttpClient, environment: dict[str, str]) -> None:
    arguments = COMMAND if environment else SLEEPER
    with serve(build_info="b10100-abcdef0") as server:
        reading = LLAMA.sample(at(server, arguments, process_environment=environment), http, histograms=True)
        assert server.paths == ["/props"]
    assert reading.state is EngineState.METRICS_DISABLED
    assert "--sleep-idle-seconds" in (reading.detail or "")


def test_unseen_command_line_reads_slots_only_while_something_runs(http: HttpClient) -> None:
    with serve("idle") as server:
        LLAMA.sample(at(server, ()), http, histograms=True)
        assert server.paths == ["/props", "/metrics"]
    with serve("busy", "one_busy") as server:
        LLAMA.sample(at(server, ()), http, histograms=True)
        assert server.paths == ["/props", "/metrics", "/slots"]


def test_server_that_cannot_sleep_is_read_without_props(http: HttpClient) -> None:
    with serve() as server:
        LLAMA.sample(at(server), http, histograms=True)
        assert server.paths == ["/metrics", "/slots"]


# Bad answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "state", "says"),
    [
        (Answer(302, headers={"Location": "/login"}), EngineState.UNREACHABLE, "redirect"),
        (Answer(body=b"<html></html>", content_type="text/html"), EngineState.UNREACHABLE, "HTML"),
        (payload("vllm_0.33_idle.prom"), EngineState.UNREACHABLE, "another server"),
        (Answer(body=b"x" * 1000, behaviour="truncate"), EngineState.UNREACHABLE, "broke off"),
        (Answer(behaviour="close"), EngineState.UNREACHABLE, "broke off"),
        (Answer(body=b"m 1\n" * 3_000_000, content_type=TEXT), EngineState.UNREACHABLE, "10,000,000 bytes"),
        (Answer(400, b"{}"), EngineState.UNREACHABLE, "400"),
    ],
)
def test_nonsense(http: HttpClient, metrics: Answer, state: EngineState, says: str) -> None:
    server = serve()
    server.answers["/metrics"] = metrics
    reading = sample(http, server)
    assert reading.state is state
    assert says in (reading.detail or "")
    assert reading.readings == {}
    assert_complete(reading)


@pytest.mark.parametrize(
    "slots",
    [
        *(document({}), document([]), document([1]), Answer(body=b"nonsense"), Answer(500)),
        payload("llamacpp_0.6.0_chat_stream_last_chunk.json"),  # the answer of another endpoint
    ],
)
def test_strange_slots(http: HttpClient, slots: Answer) -> None:
    server = serve("busy")
    server.answers["/slots"] = slots
    reading = sample(http, server)
    assert values(reading)["requests_running"] == 1
    assert reading.absences["kv_capacity_tokens"].offer is Offer.UNKNOWN
    assert_complete(reading)


def test_timeout_is_busy(impatient: HttpClient) -> None:
    with all_paths(Answer(behaviour="hang")) as server:
        reading = LLAMA.sample(at(server), impatient, histograms=True)
        with pytest.raises(TimedOutError):
            LLAMA.identify(at(server), impatient)
    assert reading.state is EngineState.BUSY


def test_refused(http: HttpClient) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert LLAMA.sample(Endpoint(url, "t", pid=os.getpid()), http, histograms=True).state is EngineState.LOADING
    assert LLAMA.sample(Endpoint(url, "t"), http, histograms=True).state is EngineState.UNREACHABLE
    with pytest.raises(ConnectFailedError):
        LLAMA.identify(Endpoint(url, "t"), http)


@pytest.mark.parametrize(
    ("arguments", "title", "expected"),
    [
        (("/usr/bin/llama-server", "-m", "a.gguf"), "llama-server", True),
        (("llama-server-cuda",), "llama-server-cu", True),
        (("/opt/llama", "serve", "-m", "a"), "llama", True),
        (("llama", "server"), "llama", True),
        ((), "llama-server", True),
        (("llama", "bench"), "llama", False),
        (("llama-bench", "-m", "a"), "llama-bench", False),
        (("ollama", "serve"), "ollama", False),
        (("python", "-m", "llama_cpp.server"), "python", False),
    ],
)
def test_looks_like(arguments: tuple[str, ...], title: str, expected: bool) -> None:
    assert LLAMA.looks_like(arguments, title) is expected
