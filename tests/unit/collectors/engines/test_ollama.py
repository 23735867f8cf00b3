"""
Ollama against bodies made from its source (tests/fixtures/README.md). Expected values were read by hand from the
file that each test names; the rules are those of api/types.go, server/routes.go and llm/llama_server.go. The
`llama-server` child answers with recorded bodies of llama.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.engines.base import Child, Endpoint, EngineReading
from collectors.engines.ollama import Ollama
from collectors.http import HttpClient
from settings import CollectorSettings
from store.model import QUANTITIES, EngineState, Offer
from tests.support.engine_server import PAYLOADS, Answer, EngineServer, document, payload

OLLAMA = Ollama()
MODEL = json.loads((PAYLOADS / "ollama_api_ps.json").read_text())["models"][0]
CHILD = ("llama-server", "--model", "/blobs/sha256-5", "--port", "1", "-c", "4096", "-np", "1")
UNPARALLEL = ("llama-server", "--model", "/blobs/sha256-5", "--port", "1")


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


def serve(ps: Answer | None = None) -> EngineServer:
    answers = {"/api/version": payload("ollama_api_version.json"), "/api/ps": ps or payload("ollama_api_ps.json")}
    return EngineServer(answers, server="")


def child_server(metrics: Answer) -> EngineServer:
    slots = payload("llamacpp_0.6.0_slots_one_busy.json")
    return EngineServer({"/metrics": metrics, "/slots": slots}, server="llama.cpp")


WITH_METRICS = payload("llamacpp_0.6.0_busy.prom")
WITHOUT = payload("llamacpp_0.6.0_501_metrics_disabled.json", status=501)


def models(*changes: dict[str, Any]) -> Answer:
    return document({"models": [MODEL | change for change in changes]})


def child(server: EngineServer, pid: int = 41, arguments: tuple[str, ...] = UNPARALLEL) -> Child:
    return Child(pid, 1000.0, arguments, server.url)


def sample(http: HttpClient, server: EngineServer, children: tuple[Child, ...] = ()) -> EngineReading:
    with server:
        return OLLAMA.sample(Endpoint(server.url, "test", children=children), http, histograms=True)


def values(reading: EngineReading) -> dict[str, float | None]:
    return {name: value.value for name, value in reading.readings.items()}


def assert_complete(reading: EngineReading) -> None:
    assert set(reading.readings) | set(reading.absences) == {quantity.name for quantity in QUANTITIES}
    assert not set(reading.readings) & set(reading.absences)
    assert all(absence.reason.endswith(".") for absence in reading.absences.values())


def test_identity(http: HttpClient) -> None:
    # ollama_api_version.json, ollama_api_ps.json
    with serve() as server:
        identity = OLLAMA.identify(Endpoint(server.url, "test"), http)
        assert server.paths == ["/api/version", "/api/ps"]
    assert identity is not None
    assert (identity.kind, identity.state, identity.version) == ("ollama", EngineState.READY, "0.32.3")
    assert (identity.model_id, identity.quantization, identity.max_context_tokens) == ("qwen3:8b", "Q4_K_M", 4096)
    assert identity.facts == {
        "models": [
            {
                "name": "qwen3:8b",
                "digest": "500a1f067a9f782620b40bee6f7b0c89e17ae61f686b92c24933e4ca4b2b8b41",
                "family": "qwen3",
                "parameters": "8.2B",
                "quantization": "Q4_K_M",
                "context_tokens": 4096,
                "size_bytes": 6441394176,
                "size_vram_bytes": 6441394176,
            }
        ]
    }
    assert identity.models_come_and_go


def test_several_models_are_named_in_a_steady_order(http: HttpClient) -> None:
    # /api/ps is sorted by expiry, which every request changes
    one, other = {"name": "b:1", "details": {"quantization_level": "Q8_0"}}, {"name": "a:1"}
    for order in ((one, other), (other, one)):
        with serve(models(*order)) as server:
            identity = OLLAMA.identify(Endpoint(server.url, "test"), http)
        assert identity is not None
        assert (identity.model_id, identity.quantization) == ("a:1, b:1", "Q4_K_M, Q8_0")
        assert identity.max_context_tokens is None
        assert [fact["name"] for fact in identity.facts["models"]] == ["a:1", "b:1"]


@pytest.mark.parametrize(
    ("version", "ps"),
    [
        (Answer(404), Answer(404)),
        (document({"version": "1"}), Answer(404)),
        (document({"version": "1"}), document({"data": []})),
        (document({"version": 3}), document({"models": []})),
        (document([]), document([])),
        (Answer(body=b"<html>", content_type="text/html"), Answer(404)),
    ],
)
def test_strangers_are_not_ollama(http: HttpClient, version: Answer, ps: Answer) -> None:
    with EngineServer({"/api/version": version, "/api/ps": ps}) as server:
        assert OLLAMA.identify(Endpoint(server.url, "test"), http) is None


@pytest.mark.parametrize("ps", [payload("ollama_api_ps_idle.json"), document({"models": None})])
def test_nothing_loaded_is_a_state_and_not_down(http: HttpClient, ps: Answer) -> None:
    # ollama_api_ps_idle.json; Go writes a nil list as null
    reading = sample(http, serve(ps))
    assert reading.state is EngineState.READY
    assert "No model is loaded" in (reading.detail or "")
    assert (reading.readings, reading.memory, reading.restart_marker) == ({}, {}, None)
    assert reading.absences["requests_running"].offer is Offer.UNKNOWN
    assert reading.absences["preemptions_total"].offer is Offer.NOT_OFFERED
    assert_complete(reading)


def test_keep_alive_and_memory_as_told(http: HttpClient) -> None:
    # ollama_api_ps.json: expires_at 2026-12-01T04:21:38.837534281Z
    reading = sample(http, serve())
    assert reading.detail == "qwen3:8b stays loaded until 04:21:38 UTC."
    assert {part: (value.value, value.source) for part, value in reading.memory.items()} == {
        "models": (6441394176, "/api/ps size"),
        "models_on_gpu": (6441394176, "/api/ps size_vram"),
    }


def test_a_model_that_never_expires(http: HttpClient) -> None:
    # keep_alive -1 is the largest duration: 292 years
    reading = sample(http, serve(models({"expires_at": "2318-03-12T04:15:00.123456789+01:00"})))
    assert reading.detail == "qwen3:8b stays loaded."


def test_size_vram_left_out_is_nothing_on_a_gpu(http: HttpClient) -> None:
    # omitempty left a 0 out (ollama#4840)
    on_cpu = {key: value for key, value in MODEL.items() if key != "size_vram"}
    reading = sample(http, serve(document({"models": [on_cpu]})))
    assert reading.memory["models_on_gpu"].value == 0
    assert reading.memory["models"].value == 6441394176


def test_memory_of_several_models_is_added(http: HttpClient) -> None:
    memory = sample(http, serve(models({}, {"name": "b", "size": 1000, "size_vram": 400}))).memory
    assert (memory["models"].value, memory["models_on_gpu"].value) == (6441395176, 6441394576)


def test_a_size_that_is_not_told_is_not_zero(http: HttpClient) -> None:
    assert "models" not in sample(http, serve(models({}, {"size": None}))).memory


def test_no_child_can_be_seen(http: HttpClient) -> None:
    reading = sample(http, serve())
    assert reading.state is EngineState.READY
    assert reading.readings == {}
    assert "no llama-server child" in reading.absences["generation_tokens_total"].reason
    assert reading.absences["e2e_seconds"].offer is Offer.NOT_OFFERED
    assert "answers to those who ask" in reading.absences["e2e_seconds"].reason
    assert_complete(reading)


def test_a_child_without_metrics_tells_its_slots(http: HttpClient) -> None:
    # llamacpp_0.6.0_slots_one_busy.json: one of four slots works, 719 tokens of 4096
    with child_server(WITHOUT) as inner:
        reading = sample(http, serve(), (child(inner),))
    assert reading.state is EngineState.READY
    assert values(reading) == {"requests_running": 1, "kv_capacity_tokens": 4096, "kv_used_fraction": 719 / 4096}
    assert reading.readings["requests_running"].source == "llama-server child: /slots is_processing"
    missing = reading.absences["generation_tokens_total"]
    assert missing.offer is Offer.DISABLED
    assert "LLAMA_ARG_ENDPOINT_METRICS=1" in (missing.remedy or "")
    assert "derived from Ollama's source" in (missing.remedy or "")
    assert_complete(reading)


def test_a_child_with_metrics_tells_for_ollama(http: HttpClient) -> None:
    # llamacpp_0.6.0_busy.prom: 228 slot-decodes, 491 prompt tokens
    with child_server(WITH_METRICS) as inner:
        reading = sample(http, serve(), (child(inner),))
    got = values(reading)
    assert (got["generation_live_tokens_total"], got["prompt_tokens_total"], got["requests_running"]) == (228, 491, 1)
    assert reading.readings["generation_live_tokens_total"].source.startswith("llama-server child: llamacpp:")
    assert reading.restart_marker == "41@1000.00"
    assert_complete(reading)


def test_two_children_are_added_and_their_caches_weighted(http: HttpClient) -> None:
    # two caches of 4096 and of 4 x 4096 tokens, 719 tokens in each
    two = models({}, {"name": "b"})
    with child_server(WITH_METRICS) as one, child_server(WITH_METRICS) as other:
        children = (child(one), child(other, 42, (*CHILD[:-1], "4")))
        reading = sample(http, serve(two), children)
    got = values(reading)
    assert (got["generation_live_tokens_total"], got["kv_capacity_tokens"]) == (456, 5 * 4096)
    assert got["kv_used_fraction"] == pytest.approx(2 * 719 / (5 * 4096))
    assert "sum over 2 models" in reading.readings["requests_running"].source
    assert reading.restart_marker == "41@1000.00 42@1000.00"


def test_a_sum_over_half_of_the_models_is_not_made(http: HttpClient) -> None:
    with child_server(WITH_METRICS) as one, child_server(WITHOUT) as other:
        two = models({}, {"name": "b"})
        reading = sample(http, serve(two), (child(one), child(other, 42)))
        assert "generation_tokens_total" not in reading.readings
        assert reading.absences["generation_tokens_total"].offer is Offer.DISABLED
        fewer = sample(http, serve(two), (child(one),))
    assert fewer.readings == {}
    assert "not (yet) those" in fewer.absences["generation_tokens_total"].reason


def test_the_child_gets_no_key_of_the_parent(http: HttpClient) -> None:
    with child_server(WITH_METRICS) as inner, serve() as server:
        OLLAMA.sample(Endpoint(server.url, "t", api_key="sesame", children=(child(inner),)), http, histograms=True)
        assert all("authorization" not in headers for _, _, headers in inner.requests)


@pytest.mark.parametrize(
    ("ps", "state"),
    [
        (Answer(500), EngineState.UNREACHABLE),
        (Answer(401), EngineState.UNAUTHORISED),
        (document({"data": []}), EngineState.UNREACHABLE),
        (Answer(behaviour="close"), EngineState.UNREACHABLE),
    ],
)
def test_nonsense(http: HttpClient, ps: Answer, state: EngineState) -> None:
    reading = sample(http, serve(ps))
    assert (reading.state, reading.readings) == (state, {})
    assert_complete(reading)


def test_what_only_answers_to_prompts_tell_is_never_asked_for(http: HttpClient) -> None:
    """
    ollama_api_show_excerpt.json and ollama_chat_final_chunk.json are answers to POSTs: durations stand only in the
    second, and the first tells the model's own longest context (40960), which is not the one in effect (4096).
    """
    show = json.loads((PAYLOADS / "ollama_api_show_excerpt.json").read_text())
    final = json.loads((PAYLOADS / "ollama_chat_final_chunk.json").read_text())
    with serve() as server:
        identity = OLLAMA.identify(Endpoint(server.url, "test"), http)
        OLLAMA.sample(Endpoint(server.url, "test"), http, histograms=True)
        assert {(method, path) for method, path, _ in server.requests} == {("GET", "/api/version"), ("GET", "/api/ps")}
    assert identity is not None
    assert identity.max_context_tokens != show["model_info"]["qwen3.context_length"] == 40960
    assert "eval_count" in final
    assert "answers" in OLLAMA.offers["ttft_seconds"].reason


@pytest.mark.parametrize(
    ("arguments", "title", "expected"),
    [
        (("ollama", "serve"), "ollama", True),
        (("/usr/local/bin/ollama", "start"), "ollama", True),
        (("/usr/bin/ollama", "runner", "--ollama-engine", "--model", "x", "--port", "3"), "ollama", True),
        (("ollama", "run", "qwen3"), "ollama", False),
        (("ollama",), "ollama", False),
        (("llama-server",), "llama-server", False),
        ((), "", False),
    ],
)
def test_looks_like(arguments: tuple[str, ...], title: str, expected: bool) -> None:
    assert OLLAMA.looks_like(arguments, title) is expected
