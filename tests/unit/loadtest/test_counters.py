"""Reading an engine's counters: a real llama.cpp server, stand-ins with recorded answers, and endpoints without any."""

from __future__ import annotations

import pytest

from loadtest.counted import difference, document
from loadtest.counters import CounterReader
from settings import Settings
from tests.support.engine_server import EngineServer, payload
from tests.support.engine_server import document as json_answer
from tests.support.llamacpp import complete, llamacpp_server
from tests.support.wait import free_port


@pytest.mark.engine
def test_llama_cpp_counts_a_request_that_has_just_ended() -> None:
    # The server itself says in each answer how many tokens it made; it adds them to its counters when a request ends.
    with llamacpp_server(threads=1) as url:
        reader = CounterReader(url, Settings())
        before = reader.read()
        made = complete(url, "Once upon a time", 12) + complete(url, "In a faraway land", 7)
        after = reader.read()
    told = difference(before, after)
    assert (before.kind, before.settled, after.settled) == ("llama.cpp", True, True)
    assert told.counted["generation_tokens_total"] == made == 19
    assert told.restarted is None
    assert told.changed is None
    assert document(before, after)["difference"]["generation_tokens_total"] == 19
    # The server has ended: that is no count of nothing.
    gone = reader.read()
    assert gone.kind is None
    assert difference(after, gone).restarted is not None


@pytest.mark.engine
def test_another_server_at_the_same_address_is_another_life() -> None:
    port = free_port()
    with llamacpp_server(port, threads=1) as url:
        complete(url, "Hello", 3)
        before = CounterReader(url, Settings()).read()
    with llamacpp_server(port, threads=1) as url:
        told = difference(before, CounterReader(url, Settings()).read())
    assert told.restarted is not None
    assert told.counted == {}


def test_an_endpoint_that_is_no_engine_has_none_and_says_why() -> None:
    found = CounterReader(f"http://127.0.0.1:{free_port()}", Settings()).read()
    assert (found.kind, found.values) == (None, {})
    assert "No known engine" in found.absent or "could not be read" in found.absent


def test_gauges_that_stand_above_0_while_nothing_moves_are_no_load() -> None:
    # vllm#29928: after an abort the gauges keep their last values. The recorded answer has 14 + 11 running requests.
    answers = {
        "/version": payload("vllm_version.json"),
        "/v1/models": payload("vllm_v1_models.json"),
        "/metrics": payload("vllm_0.33_dp2_multiproc.prom"),
    }
    with EngineServer(answers) as server:
        found = CounterReader(server.url, Settings()).read(settle_seconds=0.5)
    assert (found.kind, found.running, found.settled) == ("vllm", 25, True)


def test_an_engine_without_counters_says_why() -> None:
    answers = {"/api/version": json_answer({"version": "0.33.0"}), "/api/ps": json_answer({"models": []})}
    with EngineServer(answers) as server:
        found = CounterReader(server.url, Settings()).read(settle_seconds=0.5)
    assert (found.kind, found.values) == ("ollama", {})
    assert "No model is loaded" in found.absent


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a base URL"):
        CounterReader("file:///etc/passwd", Settings())
