"""
Who answers: the real adapters and the real HTTP client against servers on loopback.

The bodies are the recorded ones of tests/fixtures/payloads (their README says how each was made); the
expected kinds, versions and model names are what stands in those files.
"""

import json
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collectors.discovery import CONFIGURED, candidates
from collectors.engines import ADAPTERS
from collectors.engines.base import Endpoint
from collectors.http import HttpClient
from collectors.probing import Prober
from collectors.processes import ProcessTable
from settings import CollectorSettings, Settings
from store.model import EngineState
from tests.support.engines import ROUTER_PROPS
from tests.support.processes import STANDIN, Standin, vllm
from tests.support.wait import free_port, until

PAYLOADS = Path(__file__).parents[2] / "fixtures" / "payloads"
JSON, TEXT = "application/json", "text/plain; version=0.0.4; charset=utf-8"


def answers(**files):
    return {path: (200, kind, (PAYLOADS / name).read_text()) for path, (kind, name) in files.items()}


VLLM = answers(
    **{
        "/version": (JSON, "vllm_0.32.0_version_real.json"),
        "/v1/models": (JSON, "vllm_0.32.0_v1_models_real.json"),
        "/metrics": (TEXT, "vllm_0.32.0_cpu_real.prom"),
    }
) | {"/health": (200, JSON, "")}
LLAMA_CPP = answers(
    **{
        "/props": (JSON, "llamacpp_0.6.0_props.json"),
        "/v1/models": (JSON, "llamacpp_0.6.0_v1_models.json"),
        "/metrics": (TEXT, "llamacpp_0.6.0_idle.prom"),
        "/health": (JSON, "llamacpp_0.6.0_health.json"),
    }
)


class Server:
    """A real HTTP server whose answers can be exchanged; `silent` makes it accept and never answer."""

    def __init__(self, replies):
        self.replies, self.asked, self.speaks = replies, Counter(), threading.Event()
        self.speaks.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked[self.path] += 1
                outer.speaks.wait()
                status, kind, body = outer.replies.get(self.path, (404, "text/plain", "not found"))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self):
        return sum(self.asked.values())

    def close(self):
        self.speaks.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(replies):
    server = Server(replies)
    try:
        yield server
    finally:
        server.close()


class Clock:
    """The monotonic clock of a prober, moved by hand."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def http():
    """More patient than any test: what hangs, hangs until its test ends."""
    with HttpClient(CollectorSettings(request_timeout_seconds=90)) as client:
        yield client


@pytest.fixture
def prober(clock):
    prober = Prober(clock=clock, wait_seconds=10)
    yield prober
    prober.close()


def at(url, found_by="a test", **more):
    return Endpoint(url=url, found_by=found_by, **more)


def test_the_answer_decides_and_not_the_port(prober, http):
    with serving(VLLM) as one, serving(LLAMA_CPP) as two:
        found = prober.find([at(one.url), at(two.url)], ADAPTERS, http)
        assert [(f.endpoint.url, f.adapter.kind, f.identity.kind) for f in found] == [
            (one.url, "vllm", "vllm"),
            (two.url, "llama.cpp", "llama.cpp"),
        ]
        assert found[0].identity.version == "0.32.0"
        assert found[0].identity.model_id == "smollm2"


def test_a_stranger_is_left_in_peace_for_longer_and_longer(prober, http, clock):
    with serving({}) as stranger:
        assert prober.find([at(stranger.url)], ADAPTERS, http) == []
        (miss,) = prober.misses()
        assert "not as" in miss.detail
        after_first = stranger.requests
        assert after_first > 0
        asked_after = []
        for second in range(1, 40):
            clock.now = 1000.0 + second
            before = stranger.requests
            prober.find([at(stranger.url)], ADAPTERS, http)
            if stranger.requests > before:
                asked_after.append(second)
        assert asked_after == [5, 15, 35]  # 5 s, then 10 s, then 20 s later, as the class promises


def test_a_likely_endpoint_is_never_put_off_for_long(prober, http, clock):
    with serving({}) as starting:
        asked_after = []
        for second in range(40):
            clock.now = 1000.0 + second
            before = starting.requests
            prober.find([at(starting.url, CONFIGURED)], ADAPTERS, http)
            if starting.requests > before:
                asked_after.append(second)
        assert asked_after == [0, 5, 15, 25, 35]


def test_an_identified_engine_is_asked_again_only_when_its_identity_is_due(prober, http, clock):
    with serving(LLAMA_CPP) as server:
        (first,) = prober.find([at(server.url)], ADAPTERS, http)
        asked = server.requests
        clock.now += 29
        assert prober.find([at(server.url)], ADAPTERS, http) == [first]
        assert server.requests == asked
        server.replies = VLLM
        clock.now += 2
        (now,) = prober.find([at(server.url)], ADAPTERS, http)
        assert now.identity.kind == "vllm"


def test_another_process_on_the_same_port_is_asked_at_once(prober, http):
    with serving(LLAMA_CPP) as server:
        (before,) = prober.find([at(server.url, pid=100, process_start=1.0)], ADAPTERS, http)
        server.replies = VLLM
        (unchanged,) = prober.find([at(server.url, pid=100, process_start=1.0)], ADAPTERS, http)
        (after,) = prober.find([at(server.url, pid=100, process_start=2.0)], ADAPTERS, http)
        kinds = [found.identity.kind for found in (before, unchanged, after)]
        assert kinds == ["llama.cpp", "llama.cpp", "vllm"]


def test_a_port_that_hangs_delays_no_other(http, clock):
    prober = Prober(clock=clock, wait_seconds=0.05)
    with serving({}) as hanging, serving(VLLM) as good:
        hanging.speaks.clear()
        endpoints = [at(hanging.url), at(good.url)]
        found = until(lambda: prober.find(endpoints, ADAPTERS, http), what="the engine beside a port that hangs")
        assert [f.endpoint.url for f in found] == [good.url]
        assert [(m.endpoint.url, m.detail) for m in prober.misses()] == [(hanging.url, "no answer yet")]
        assert hanging.requests == 1  # one probe at a time, however often it is looked for
    prober.close()


def test_more_hanging_ports_than_threads_do_not_keep_a_configured_engine_out(http, clock):
    prober = Prober(clock=clock, wait_seconds=0.05, threads=2)
    with serving({}) as one, serving({}) as two, serving({}) as three, serving(VLLM) as good:
        for hanging in (one, two, three):
            hanging.speaks.clear()
        strangers = [at(server.url) for server in (one, two, three)]
        prober.find(strangers, ADAPTERS, http)
        endpoints = [*strangers, at(good.url, CONFIGURED)]
        found = until(lambda: prober.find(endpoints, ADAPTERS, http), what="the configured engine")
        assert [f.endpoint.url for f in found] == [good.url]
    prober.close()


def test_an_engine_that_stops_answering_is_busy_and_keeps_its_identity(clock):
    prober = Prober(clock=clock, wait_seconds=10)
    with HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as http, serving(LLAMA_CPP) as server:
        (before,) = prober.find([at(server.url)], ADAPTERS, http)
        server.speaks.clear()
        clock.now += 31
        (after,) = prober.find([at(server.url)], ADAPTERS, http)
        assert after.identity.state == EngineState.BUSY
        assert after.identity.model_path == before.identity.model_path
    prober.close()


def test_an_engine_that_does_not_listen_yet_is_loading_and_then_ready(tmp_path, prober, http, clock):
    port = free_port()
    settings = Settings(data=tmp_path)

    def look(process):
        listed = candidates(settings, ADAPTERS, ProcessTable().snapshot(sockets=True))
        return prober.find([endpoint for endpoint in listed if endpoint.pid == process.pid], ADAPTERS, http)

    later = tmp_path / "later"
    plan = {"listen_when_exists": str(later), "listen": [["127.0.0.1", port]], "answers": VLLM}
    with vllm(tmp_path, ["smollm2", "--port", str(port)], plan) as engine:
        (found,) = look(engine)
        assert (found.identity.kind, found.identity.state) == ("vllm", EngineState.LOADING)
        assert str(engine.pid) in found.identity.detail
        later.touch()

        def ready():
            clock.now += 6
            found = look(engine)
            return found if found and found[0].identity.state == EngineState.READY else None

        (found,) = until(ready, what="the engine to be ready")
        assert found.identity.model_id == "smollm2"


def test_a_llama_server_inside_another_program_is_found_by_its_port(tmp_path, prober, http):
    """As xllamacpp does: the process is a Python program; its port and its answers tell what it is."""
    port = free_port()
    plan = {"listen": [["127.0.0.1", port]], "answers": LLAMA_CPP}
    with Standin([sys.executable, str(STANDIN)], plan) as program:
        settings = Settings(data=tmp_path, collector=CollectorSettings(ports=(port,)))
        listed = candidates(settings, ADAPTERS, ProcessTable().snapshot(sockets=True))
        (found,) = prober.find([e for e in listed if e.pid == program.pid], ADAPTERS, http)
        assert (found.identity.kind, found.endpoint.pid) == ("llama.cpp", program.pid)


def test_nothing_at_a_configured_address_is_a_miss_that_says_so(prober, http):
    url = f"http://127.0.0.1:{free_port()}"
    assert prober.find([at(url, CONFIGURED)], ADAPTERS, http) == []
    (miss,) = prober.misses()
    assert (miss.endpoint.url, miss.endpoint.found_by) == (url, CONFIGURED)
    assert "refused" in miss.detail.lower()


def test_a_faulty_adapter_is_named_and_the_others_go_on(prober, http):
    class Faulty:
        kind, title, usual_ports, start_hint = "faulty", "Faulty", (1,), ""

        def looks_like(self, arguments, process_name):
            return False

        def identify(self, endpoint, http):
            raise KeyError("model")

        def sample(self, endpoint, http, *, histograms):
            raise NotImplementedError

    with serving(VLLM) as server, serving({}) as stranger:
        found = prober.find([at(server.url), at(stranger.url)], (Faulty(), *ADAPTERS), http)
        assert [f.identity.kind for f in found] == ["vllm"]
        assert "Faulty: KeyError in its adapter" in prober.misses()[0].detail


def test_an_endpoint_that_is_no_longer_listed_is_forgotten(prober, http):
    with serving(VLLM) as server:
        assert len(prober.find([at(server.url)], ADAPTERS, http)) == 1
        assert prober.find([], ADAPTERS, http) == []
        asked = server.requests
        assert len(prober.find([at(server.url)], ADAPTERS, http)) == 1
        assert server.requests > asked


LISTED = (PAYLOADS / "llamacpp_0.6.0_router_models_one_loaded.json").read_text()
UNLOADED = (PAYLOADS / "llamacpp_0.6.0_router_models_unloaded.json").read_text()
ROUTER = {
    "/props": (200, JSON, json.dumps(ROUTER_PROPS)),
    "/models": (200, JSON, LISTED),
    "/props?model=tiny&autoload=false": (200, JSON, (PAYLOADS / "llamacpp_0.6.0_props.json").read_text()),
}


def test_the_models_of_a_router_come_and_go_with_each_look(prober, http):
    with serving(dict(ROUTER)) as server:
        for listing, models in ((LISTED, [None, "tiny"]), (UNLOADED, [None]), (LISTED, [None, "tiny"])):
            server.replies["/models"] = (200, JSON, listing)
            found = prober.find([at(server.url)], ADAPTERS, http)
            assert [(f.endpoint.model, f.adapter.kind) for f in found] == [(m, "llama.cpp") for m in models]
        assert found[1].identity.model_id == "tiny"
