"""
Nothing that is sent to an engine changes its state. Every request of identifying and sampling is
recorded and compared with the GETs whose handlers were read in the engines' source: vLLM's `/version`,
`/v1/models`, `/metrics`, `/health`, and llama-server's `/props`, `/v1/models`, `/metrics` and `/slots`.
"""

from __future__ import annotations

import pytest

from collectors.engines import ADAPTERS
from collectors.engines.base import Adapter, Endpoint
from collectors.http import HttpClient, HttpError
from settings import CollectorSettings
from tests.support.engine_server import PAYLOADS, Answer, EngineServer, payload

STATE_PRESERVING = {
    "vllm": {"/version", "/v1/models", "/metrics", "/health"},
    "llama.cpp": {"/props", "/v1/models", "/metrics", "/slots"},
}
VLLM = {
    "/version": payload("vllm_version.json"),
    "/v1/models": payload("vllm_v1_models.json"),
    "/metrics": payload("vllm_0.33_single.prom"),
    "/health": Answer(),
}
LLAMA = {
    "/props": payload("llamacpp_0.6.0_props.json"),
    "/v1/models": payload("llamacpp_0.6.0_v1_models.json"),
    "/metrics": payload("llamacpp_0.6.0_busy.prom"),
    "/slots": payload("llamacpp_0.6.0_slots_one_busy.json"),
}
SERVERS = {
    "vllm": (VLLM, "uvicorn"),
    "llama.cpp": (LLAMA, "llama.cpp"),
    "stranger": ({}, "nginx"),
    "locked": (dict.fromkeys((*VLLM, *LLAMA), Answer(401)), "uvicorn"),
    "loading": (dict.fromkeys((*VLLM, *LLAMA), payload("llamacpp_0.6.0_503_loading.json", status=503)), "llama.cpp"),
    "html": (dict.fromkeys((*VLLM, *LLAMA), Answer(body=b"<html>", content_type="text/html")), "nginx"),
}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.kind)
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("arguments", [(), ("llama-server", "--sleep-idle-seconds", "9"), ("vllm", "serve", "m")])
def test_only_harmless_gets(adapter: Adapter, name: str, arguments: tuple[str, ...]) -> None:
    answers, software = SERVERS[name]
    with EngineServer(answers, server=software) as server, HttpClient(CollectorSettings()) as http:
        endpoint = Endpoint(server.url, "test", arguments=arguments)
        adapter.identify(endpoint, http)
        for histograms in (True, False):
            adapter.sample(endpoint, http, histograms=histograms)
        assert {method for method, _, _ in server.requests} == {"GET"}
        assert set(server.paths) <= STATE_PRESERVING[adapter.kind]


@pytest.mark.parametrize("name", SERVERS)
def test_asking_everybody_in_turn_leaves_a_llama_cpp_asleep(name: str) -> None:
    # Whoever answers is asked by adapter after adapter until one recognises it; none may wake a sleeping model.
    answers, software = SERVERS[name]
    sleeping = (
        (PAYLOADS / "llamacpp_0.6.0_props.json").read_bytes().replace(b'"is_sleeping": false', b'"is_sleeping": true')
    )
    if name == "llama.cpp":
        answers = answers | {"/props": Answer(body=sleeping)}
    with EngineServer(answers, server=software) as server, HttpClient(CollectorSettings()) as http:
        found = None
        for adapter in ADAPTERS:
            try:
                found = adapter.identify(Endpoint(server.url, "test"), http)
            except HttpError:
                continue
            if found is not None:
                break
        if software == "llama.cpp":
            assert found is not None
            assert found.kind == "llama.cpp"
            assert not {"/slots", "/metrics"} & set(server.paths)
