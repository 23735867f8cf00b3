"""
A llama.cpp router: what is asked of it, and the engines behind it.

The bodies are those of a live router of 0.6.0-dev with two models (tests/fixtures/README.md); expected values are
what stands in them. Rules: tools/server/server-models.cpp (a GET that names a model loads it unless it says
`autoload=false`, which does not keep `/slots` from waking a sleeping child). Checked with a real router of b11434 on
a CPU: `Process-Start-Time-Unix` comes through it, and a child polled by `/models` and `/props` falls and stays asleep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from collectors.engines.base import Child, Endpoint, EngineReading, Identity
from collectors.engines.llamacpp import LlamaCpp
from collectors.http import HttpClient
from settings import CollectorSettings
from store.model import QUANTITIES, EngineState, Offer
from tests.support.engine_server import PAYLOADS, Answer, EngineServer, document, payload
from tests.support.engines import ROUTER_PROPS

LLAMA = LlamaCpp()
ROUTER = ("llama-server", "--models-dir", "/models", "--metrics")
QUERY = "?model=tiny&autoload=false"
LISTED = json.loads((PAYLOADS / "llamacpp_0.6.0_router_models_one_loaded.json").read_text())
NO_MODEL = payload("llamacpp_0.6.0_400_router_no_model.json", status=400)
NOT_LOADED = payload("llamacpp_0.6.0_400_router_not_loaded.json", status=400)
CHILD = Child(77, 5000.0, ("llama-server", "--port", "59427", "--alias", "tiny", "--metrics"), "http://127.0.0.1:59427")


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


def listing(**status: object) -> Answer:
    """`/models` with the status of `tiny` changed."""
    changed = json.loads(json.dumps(LISTED))
    changed["data"][0]["status"].update(status)
    return document(changed)


def serve(models: Answer | None = None, **changed: Answer) -> EngineServer:
    answers = {
        "/props": document(ROUTER_PROPS),
        "/models": models or payload("llamacpp_0.6.0_router_models_one_loaded.json"),
        "/metrics": NO_MODEL,
        "/slots": NO_MODEL,
        f"/props{QUERY}": payload("llamacpp_0.6.0_props.json"),
        f"/metrics{QUERY}": payload("llamacpp_0.6.0_after.prom"),
        f"/slots{QUERY}": payload("llamacpp_0.6.0_slots_idle_after_one.json"),
    }
    return EngineServer(answers | {f"{path}{QUERY}": answer for path, answer in changed.items()}, server="llama.cpp")


def at(server: EngineServer, **fields: object) -> Endpoint:
    known = {"url": server.url, "found_by": "test", "arguments": ROUTER, "children": (CHILD,), "pid": 70}
    return Endpoint(**{**known, **fields})


def expand(http: HttpClient, server: EngineServer, **fields: object) -> list[tuple[Endpoint, Identity]]:
    endpoint = at(server, **fields)
    identity = LLAMA.identify(endpoint, http)
    assert identity is not None
    return list(LLAMA.expand(endpoint, identity, http))


def sample_model(http: HttpClient, server: EngineServer, **fields: object) -> EngineReading:
    with server:
        return LLAMA.sample(at(server, **{"model": "tiny", **fields}), http, histograms=True)


def values(reading: EngineReading) -> dict[str, float | None]:
    return {name: value.value for name, value in reading.readings.items()}


def assert_complete(reading: EngineReading) -> None:
    assert set(reading.readings) | set(reading.absences) == {quantity.name for quantity in QUANTITIES}
    assert not set(reading.readings) & set(reading.absences)


def assert_loads_nothing(server: EngineServer, loaded: set[str]) -> None:
    """No request names a model that is not loaded, and each that names one says `autoload=false`."""
    assert {method for method, _, _ in server.requests} == {"GET"}
    for path in server.paths:
        query = parse_qs(urlsplit(path).query)
        if query:
            assert query["autoload"] == ["false"]
            assert set(query["model"]) <= loaded


@pytest.mark.parametrize("arguments", [ROUTER, ()])
def test_a_router_is_named_with_its_models(http: HttpClient, arguments: tuple[str, ...]) -> None:
    with serve() as server:
        identity = LLAMA.identify(at(server, arguments=arguments), http)
        reading = LLAMA.sample(at(server, arguments=arguments), http, histograms=True)
        assert_loads_nothing(server, set())
    assert identity is not None
    assert (identity.model_id, identity.version) == (None, "b11434-abcdef0")
    assert identity.facts == {"role": "router", "max_instances": 4, "models": {"tiny": "loaded", "tinyb": "unloaded"}}
    assert identity.models_come_and_go
    assert (reading.state, reading.readings) == (EngineState.READY, {})
    assert "1 of 2 models loaded" in (reading.detail or "")
    assert reading.absences["generation_tokens_total"].offer is Offer.NOT_OFFERED
    assert_complete(reading)


def test_nothing_loaded(http: HttpClient) -> None:
    with serve(payload("llamacpp_0.6.0_router_models_unloaded.json")) as server:
        assert expand(http, server) == []
        assert "0 of 2" in (LLAMA.sample(at(server), http, histograms=True).detail or "")
        assert_loads_nothing(server, set())


@pytest.mark.parametrize(
    ("status", "fact", "says"),
    [
        ({"value": "loading"}, "loading", "Loading: tiny."),
        ({"value": "downloading"}, "downloading", "Downloading: tiny."),
        ({"value": "unloaded", "failed": True, "exit_code": 1}, "failed", "Failed: tiny."),
    ],
)
def test_models_that_are_not_loaded_are_facts_of_the_router(
    http: HttpClient, status: dict[str, object], fact: str, says: str
) -> None:
    with serve(listing(**status)) as server:
        identity = LLAMA.identify(at(server), http)
        reading = LLAMA.sample(at(server), http, histograms=True)
        assert expand(http, server) == []
        assert_loads_nothing(server, set())
    assert identity is not None
    assert identity.facts["models"] == {"tiny": fact, "tinyb": "unloaded"}
    assert says in (reading.detail or "")


def test_a_loaded_model_is_an_engine_with_its_child_as_process(http: HttpClient) -> None:
    with serve() as server:
        ((endpoint, identity),) = expand(http, server, api_key="sesame", name="box")
        assert_loads_nothing(server, {"tiny"})
    assert (endpoint.url, endpoint.model, endpoint.api_key) == (server.url, "tiny", "sesame")
    assert (endpoint.pid, endpoint.process_start, endpoint.arguments) == (77, 5000.0, CHILD.arguments)
    assert (endpoint.name, endpoint.children) == (None, ())
    assert "router" in endpoint.found_by
    assert (identity.model_id, identity.model_path) == ("tiny", "/models/tiny.gguf")
    assert (identity.quantization, identity.max_context_tokens, identity.slots) == ("all F32", 4096, 4)
    assert identity.facts["weights_bytes"] == 16712960
    assert not identity.models_come_and_go


def test_a_child_that_cannot_be_seen_leaves_the_command_line_that_the_router_tells(http: HttpClient) -> None:
    with serve() as server:
        ((endpoint, _),) = expand(http, server, children=())
    assert (endpoint.pid, endpoint.process_start) == (None, None)
    assert endpoint.arguments == tuple(LISTED["data"][0]["status"]["args"])


def test_the_child_of_another_model_is_not_taken(http: HttpClient) -> None:
    with serve() as server:
        ((endpoint, _),) = expand(
            http, server, children=(Child(78, 1.0, ("llama-server", "--port", "1", "--alias", "tiny"), None),)
        )
    assert endpoint.pid is None


def test_secrets_in_the_command_line_that_the_router_tells_are_hidden(http: HttpClient) -> None:
    secret = "hf_notarealtoken123"
    with serve(listing(args=["llama-server", "--hf-token", secret, "--alias", "tiny"])) as server:
        found = expand(http, server, children=())
    assert secret not in repr(found)
    assert len(found) == 1


def test_a_model_is_sampled_through_its_router(http: HttpClient) -> None:
    # llamacpp_0.6.0_after.prom: 3000 tokens; four slots of 4096 without -np share one cache
    with serve() as server:
        ((endpoint, _),) = expand(http, server)
        server.requests.clear()
        reading = LLAMA.sample(endpoint, http, histograms=True)
        assert server.paths == ["/models", f"/metrics{QUERY}", f"/slots{QUERY}"]
    got = values(reading)
    assert reading.state is EngineState.READY
    assert (got["generation_tokens_total"], got["kv_capacity_tokens"], got["requests_running"]) == (3000, 4096, 0)
    assert_complete(reading)


def test_a_name_with_a_slash_and_a_colon_is_quoted(http: HttpClient) -> None:
    name = "ggml-org/gemma-3:Q4_K_M"
    listed = json.loads(json.dumps(LISTED))
    listed["data"][0]["id"] = name
    with serve(document(listed)) as server:
        reading = LLAMA.sample(at(server, model=name), http, histograms=True)
        assert server.paths[1] == "/metrics?model=ggml-org%2Fgemma-3%3AQ4_K_M&autoload=false"
        assert_loads_nothing(server, {name})
    assert reading.state is EngineState.METRICS_DISABLED  # this server knows no such path: 404


@pytest.mark.parametrize(
    ("status", "state", "says"),
    [
        ({"value": "unloaded"}, EngineState.STOPPED, "has unloaded"),
        ({"value": "unloaded", "failed": True, "exit_code": 1}, EngineState.STOPPED, "could not load"),
        ({"value": "loading"}, EngineState.LOADING, "loading"),
        ({"value": "downloading"}, EngineState.LOADING, "downloading"),
    ],
)
def test_a_model_that_is_not_loaded_is_not_asked(
    http: HttpClient, status: dict[str, object], state: EngineState, says: str
) -> None:
    with serve(listing(**status)) as server:
        reading = LLAMA.sample(at(server, model="tiny"), http, histograms=True)
        assert server.paths == ["/models"]
    assert reading.state is state
    assert says in (reading.detail or "")
    assert_complete(reading)


def test_a_model_that_the_router_forgot(http: HttpClient) -> None:
    reading = sample_model(http, serve(), model="gone")
    assert reading.state is EngineState.STOPPED


def test_a_model_that_is_unloaded_between_two_requests(http: HttpClient) -> None:
    # llamacpp_0.6.0_400_router_not_loaded.json
    reading = sample_model(http, serve(**{"/metrics": NOT_LOADED}))
    assert reading.state is EngineState.STOPPED
    assert_complete(reading)


@pytest.mark.parametrize(("build", "asked"), [("b0-unknown", []), ("b11434-abcdef0", ["/metrics"])])
def test_a_sleeping_child_is_left_asleep(http: HttpClient, build: str, asked: list[str]) -> None:
    # /slots always wakes it; /metrics did before pull request 27376
    props = json.loads((PAYLOADS / "llamacpp_0.6.0_props.json").read_text()) | {
        "is_sleeping": True,
        "build_info": build,
    }
    awake = {"/props": document(props), "/metrics": payload("llamacpp_0.6.0_sleeping.prom")}
    with serve(listing(value="sleeping"), **awake) as server:
        ((endpoint, identity),) = expand(http, server)
        server.requests.clear()
        reading = LLAMA.sample(endpoint, http, histograms=True)
        assert server.paths == ["/models", f"/props{QUERY}", *(f"{path}{QUERY}" for path in asked)]
    assert identity.state is reading.state is EngineState.SLEEPING
    assert ("generation_tokens_total" in reading.readings) == bool(asked)
    assert_complete(reading)


def test_the_routers_word_that_a_child_sleeps_is_enough(http: HttpClient) -> None:
    # /props of the child may be a moment older or newer than /models: in doubt the model is left asleep
    with serve(listing(value="sleeping")) as server:
        reading = LLAMA.sample(at(server, model="tiny", arguments=CHILD.arguments), http, histograms=True)
        assert server.paths == ["/models", f"/props{QUERY}"]
    assert reading.state is EngineState.SLEEPING


def test_a_child_without_metrics(http: HttpClient) -> None:
    disabled = payload("llamacpp_0.6.0_501_metrics_disabled.json", status=501)
    reading = sample_model(http, serve(**{"/metrics": disabled}), arguments=CHILD.arguments)
    assert reading.state is EngineState.METRICS_DISABLED
    assert values(reading)["requests_running"] == 0
    assert_complete(reading)


def test_a_locked_router(http: HttpClient) -> None:
    locked = payload("llamacpp_0.6.0_401_no_key.json", status=401)
    with serve(locked) as server:
        identity = LLAMA.identify(at(server), http)
        assert expand(http, server) == []
        reading = LLAMA.sample(at(server, model="tiny"), http, histograms=True)
    assert identity is not None
    assert "401" in (identity.detail or "")
    assert "api_key_env" in (identity.detail or "")
    assert reading.state is EngineState.UNAUTHORISED


@pytest.mark.parametrize(
    "models", [document({"data": [1, {"id": "x"}, {"id": 3, "status": {}}]}), document({"data": []})]
)
def test_strange_listings_list_nothing(http: HttpClient, models: Answer) -> None:
    with serve(models) as server:
        assert expand(http, server) == []


def test_a_child_that_hangs_keeps_its_name_and_delays_no_other() -> None:
    with (
        serve(**{"/props": Answer(behaviour="hang")}) as server,
        HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as impatient,
    ):
        ((_, identity),) = expand(impatient, server)
    assert (identity.model_id, identity.state) == ("tiny", EngineState.BUSY)
