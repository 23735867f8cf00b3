"""
Nothing that is sent to an engine changes its state. Every request of identifying, expanding and sampling is recorded
and compared with the GETs whose handlers were read in the engines' source.

What changes a state there, and must never be sent: any POST; llama-server's `/slots` and (before August 2026)
`/metrics` while it sleeps, any `?model=` without `autoload=false`, `/models?reload=1`; SGLang's `/health*`, which
run a generation; TGI's `/health`, which runs a prefill; vLLM's `/server_info`, which shows its environment.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from collectors.engines import ADAPTERS
from collectors.engines.base import Adapter, Child, Endpoint
from collectors.http import HttpClient, HttpError
from settings import CollectorSettings
from tests.support.engine_server import PAYLOADS, Answer, EngineServer, document, payload
from tests.support.engines import ROUTER_PROPS

STATE_PRESERVING = {
    "vllm": {"/version", "/v1/models", "/metrics", "/health"},
    "llama.cpp": {"/props", "/models", "/v1/models", "/metrics", "/slots"},
    "sglang": {
        "/model_info", "/get_model_info", "/server_info", "/get_server_info", "/v1/models", "/v1/loads", "/metrics",
    },
    "tgi": {"/info", "/metrics"},
    "ollama": {"/api/version", "/api/ps"},
}  # fmt: skip
OF_CHILDREN = {"/props", "/metrics", "/slots"}
VLLM = {
    "/version": payload("vllm_version.json"),
    "/v1/models": payload("vllm_v1_models.json"),
    "/metrics": payload("vllm_0.33_single.prom"),
    "/health": Answer(),
    "/load": payload("vllm_load.json"),  # nothing of it is wanted: it stays 0 without --enable-server-load-tracking
}
LLAMA = {
    "/props": payload("llamacpp_0.6.0_props.json"),
    "/v1/models": payload("llamacpp_0.6.0_v1_models.json"),
    "/metrics": payload("llamacpp_0.6.0_busy.prom"),
    "/slots": payload("llamacpp_0.6.0_slots_one_busy.json"),
}
SGLANG = {
    "/model_info": payload("sglang_model_info.json"),
    "/server_info": payload("sglang_server_info_excerpt.json"),
    "/v1/models": document({"data": [{"id": "m", "owned_by": "sglang"}]}),
    "/metrics": payload("sglang_0.5.23.prom"),
    "/health": Answer(),
}
TGI = {"/info": payload("tgi_info.json"), "/metrics": payload("tgi_3.3.prom"), "/health": Answer()}
OLLAMA = {"/api/version": payload("ollama_api_version.json"), "/api/ps": payload("ollama_api_ps.json")}
ROUTER = {
    "/props": document(ROUTER_PROPS),
    "/models": payload("llamacpp_0.6.0_router_models_one_loaded.json"),
    "/metrics": payload("llamacpp_0.6.0_400_router_no_model.json", status=400),
    "/slots": payload("llamacpp_0.6.0_400_router_no_model.json", status=400),
    **{f"{path}?model=tiny&autoload=false": answer for path, answer in LLAMA.items()},
}
EVERY_PATH = {path for paths in STATE_PRESERVING.values() for path in paths}
SERVERS = {
    "vllm": (VLLM, "uvicorn"),
    "llama.cpp": (LLAMA, "llama.cpp"),
    "router": (ROUTER, "llama.cpp"),
    "sglang": (SGLANG, "uvicorn"),
    "sglang without metrics": (
        SGLANG | {"/metrics": Answer(404), "/v1/loads?include=core": payload("sglang_v1_loads.json")},
        "uvicorn",
    ),
    "tgi": (TGI, ""),
    "ollama": (OLLAMA, ""),
    "stranger": ({}, "nginx"),
    "locked": (dict.fromkeys(EVERY_PATH, Answer(401)), "uvicorn"),
    "forbidden": (dict.fromkeys(EVERY_PATH, Answer(403)), "nginx"),
    "loading": (dict.fromkeys(EVERY_PATH, payload("llamacpp_0.6.0_503_loading.json", status=503)), "llama.cpp"),
    "html": (dict.fromkeys(EVERY_PATH, Answer(body=b"<html>", content_type="text/html")), "nginx"),
}
COMMANDS = [
    (),
    ("llama-server", "--sleep-idle-seconds", "9"),
    ("vllm", "serve", "m"),
    ("python", "-m", "sglang.launch_server"),
    ("text-generation-launcher",),
    ("ollama", "serve"),
]


def assert_harmless(server: EngineServer, allowed: set[str]) -> None:
    assert {method for method, _, _ in server.requests} <= {"GET"}
    for path in server.paths:
        parts = urlsplit(path)
        query = parse_qs(parts.query)
        assert parts.path in allowed
        if "model" in query:
            assert query == {"model": ["tiny"], "autoload": ["false"]}  # the only model that is loaded
        else:
            assert query in ({}, {"include": ["core"]})


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.kind)
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words) or "unseen")
def test_only_harmless_gets(adapter: Adapter, name: str, arguments: tuple[str, ...]) -> None:
    answers, software = SERVERS[name]
    with (
        EngineServer(answers, server=software) as server,
        EngineServer(LLAMA, server="llama.cpp") as inner,
        HttpClient(CollectorSettings()) as http,
    ):
        child = Child(1, 1.0, ("llama-server", "--sleep-idle-seconds", "9"), inner.url)
        endpoint = Endpoint(server.url, "test", arguments=arguments, children=(child,))
        identity = adapter.identify(endpoint, http)
        behind = adapter.expand(endpoint, identity, http) if identity is not None else ()
        for at in (endpoint, *(at for at, _ in behind)):
            for histograms in (True, False):
                adapter.sample(at, http, histograms=histograms)
        assert len(behind) == (1 if (adapter.kind, name) == ("llama.cpp", "router") else 0)
        assert_harmless(server, STATE_PRESERVING[adapter.kind])
        assert_harmless(inner, OF_CHILDREN)


@pytest.mark.parametrize("first", [adapter.kind for adapter in ADAPTERS])
@pytest.mark.parametrize("name", SERVERS)
def test_asking_everybody_in_turn_is_harmless_to_whoever_answers(name: str, first: str) -> None:
    # Whoever answers is asked by adapter after adapter until one recognises it, beginning with the one whose usual
    # port or command line it is; none may wake a sleeping model.
    answers, software = SERVERS[name]
    sleeping = (
        (PAYLOADS / "llamacpp_0.6.0_props.json").read_bytes().replace(b'"is_sleeping": false', b'"is_sleeping": true')
    )
    if name == "llama.cpp":
        answers = answers | {"/props": Answer(body=sleeping)}
    with EngineServer(answers, server=software) as server, HttpClient(CollectorSettings()) as http:
        found = None
        for adapter in sorted(ADAPTERS, key=lambda adapter: adapter.kind != first):
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
        kind = name.split()[0]
        if kind in STATE_PRESERVING:
            assert found is not None
            assert found.kind == kind
        if name in ("stranger", "html", "forbidden", "locked"):
            assert found is None
        assert_harmless(server, EVERY_PATH)
        assert not any("health" in path for path in server.paths)
