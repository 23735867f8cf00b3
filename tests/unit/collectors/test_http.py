"""The client against a real server on loopback that behaves as badly as servers do (RFC 9110 and 9112 for the rest)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.engines.base import Endpoint
from collectors.http import (
    ConnectFailedError,
    HttpClient,
    HttpError,
    ProtocolError,
    RedirectedError,
    TimedOutError,
    TooLargeError,
)
from settings import CollectorSettings
from tests.support.engine_server import Answer, EngineServer
from tests.support.wait import free_port


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=10, max_body_bytes=10_000_000)) as client:
        yield client


@pytest.fixture
def impatient() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=0.5, max_body_bytes=20_000)) as client:
        yield client


def endpoint(url: str, api_key: str | None = None) -> Endpoint:
    return Endpoint(url=url, found_by="test", api_key=api_key)


def test_get_returns_status_type_body_and_headers(http: HttpClient) -> None:
    answer = Answer(418, b"short", "text/x-tea", {"X-Pot": "brown"})
    with EngineServer({"/tea": answer}) as server:
        got = http.get(endpoint(server.url), "/tea", accept="text/x-tea")
        assert (got.status, got.content_type, got.body, got.headers["x-pot"]) == (418, "text/x-tea", b"short", "brown")
        method, path, headers = server.requests[0]
        assert (method, path, headers["accept"]) == ("GET", "/tea", "text/x-tea")
        assert "authorization" not in headers


def test_connection_is_kept_and_a_closed_one_is_replaced(http: HttpClient) -> None:
    with EngineServer({"/a": Answer(body=b"1")}) as server:
        assert [http.get(endpoint(server.url), "/a").body for _ in range(3)] == [b"1"] * 3
        server.answers["/a"] = Answer(body=b"2", headers={"Connection": "close"})
        assert [http.get(endpoint(server.url), "/a").body for _ in range(3)] == [b"2"] * 3


def test_connection_closed_in_the_moment_of_use_is_tried_once_more(http: HttpClient) -> None:
    # A server may close an idle connection at any time (RFC 9112, 9.3.1); a GET may then be repeated.
    with EngineServer({"/a": Answer(body=b"1", behaviour="close_first"), "/b": Answer(behaviour="close")}) as server:
        assert http.get(endpoint(server.url), "/a").body == b"1"
        with pytest.raises(ProtocolError):
            http.get(endpoint(server.url), "/b")
        assert server.paths == ["/a", "/a", "/b", "/b"]


def test_key_goes_only_to_its_endpoint(http: HttpClient) -> None:
    with EngineServer({"/a": Answer()}) as mine, EngineServer({"/a": Answer()}) as other:
        http.get(endpoint(mine.url, "sesame"), "/a")
        http.get(endpoint(other.url), "/a")
        assert mine.requests[0][2]["authorization"] == "Bearer sesame"
        assert "authorization" not in other.requests[0][2]


def test_key_that_http_cannot_carry_is_not_told(http: HttpClient) -> None:
    with EngineServer({"/a": Answer()}) as server, pytest.raises(ProtocolError) as caught:
        http.get(endpoint(server.url, "top\r\nsecret"), "/a")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_redirect_is_an_error_that_names_the_target(http: HttpClient) -> None:
    with EngineServer({"/a": Answer(307, headers={"Location": "http://elsewhere.test/b"})}) as server:
        with pytest.raises(RedirectedError, match=r"elsewhere\.test/b"):
            http.get(endpoint(server.url, "sesame"), "/a")
        assert server.paths == ["/a"]


def test_proxy_variables_are_ignored(http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with EngineServer({"/a": Answer(body=b"direct")}) as server:
        assert http.get(endpoint(server.url), "/a").body == b"direct"


@pytest.mark.parametrize("behaviour", ["hang", "drip", "stall"])
def test_deadline_covers_the_whole_answer(impatient: HttpClient, behaviour: str) -> None:
    # A server that drips a byte now and then never trips a timeout that begins anew with each byte.
    bad = Answer(body=b"x" * 1000, behaviour=behaviour)
    with EngineServer({"/a": bad}) as server, pytest.raises(TimedOutError, match=r"0\.5 s"):
        impatient.get(endpoint(server.url), "/a")


def test_one_hanging_endpoint_does_not_hold_up_another(http: HttpClient) -> None:
    with EngineServer({"/a": Answer(behaviour="hang")}) as hanging, EngineServer({"/a": Answer(body=b"ok")}) as good:
        errors: list[Exception] = []

        def ask() -> None:
            try:
                http.get(endpoint(hanging.url), "/a")
            except HttpError as error:  # the server is closed below
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert [http.get(endpoint(good.url), "/a").body for _ in range(20)] == [b"ok"] * 20
        assert thread.is_alive()
        hanging.close()
        thread.join(10)
        assert len(errors) == 1


@pytest.mark.parametrize("behaviour", ["truncate", "close", "garbage"])
def test_broken_answer(http: HttpClient, behaviour: str) -> None:
    bad = Answer(body=b"x" * 1000, behaviour=behaviour)
    with EngineServer({"/a": bad}) as server, pytest.raises(ProtocolError, match="GET /a"):
        http.get(endpoint(server.url), "/a")


def test_body_at_the_cap_is_read_and_one_byte_more_is_not(impatient: HttpClient) -> None:
    with EngineServer({"/a": Answer(body=b"x" * 20_000), "/b": Answer(body=b"x" * 20_001)}) as server:
        assert len(impatient.get(endpoint(server.url), "/a").body) == 20_000
        with pytest.raises(TooLargeError, match="20,000 bytes"):
            impatient.get(endpoint(server.url), "/b")


def test_more_than_ten_megabytes_are_given_up(http: HttpClient) -> None:
    with EngineServer({"/a": Answer(body=b"x" * 11_000_000)}) as server, pytest.raises(TooLargeError):
        http.get(endpoint(server.url), "/a")


def test_gzip_counts_unpacked(impatient: HttpClient) -> None:
    small, bomb = Answer(body=b"x" * 20_000, gzipped=True), Answer(body=b"x" * 5_000_000, gzipped=True)
    with EngineServer({"/small": small, "/bomb": bomb}) as server:
        assert impatient.get(endpoint(server.url), "/small").body == b"x" * 20_000
        with pytest.raises(TooLargeError):
            impatient.get(endpoint(server.url), "/bomb")
        assert server.requests[0][2]["accept-encoding"] == "identity"


def test_false_gzip_and_unknown_encoding(http: HttpClient) -> None:
    answers = {
        "/a": Answer(body=b"plain", headers={"Content-Encoding": "gzip"}),
        "/b": Answer(body=b"plain", headers={"Content-Encoding": "br"}),
    }
    with EngineServer(answers) as server:
        with pytest.raises(ProtocolError, match="gzip"):
            http.get(endpoint(server.url), "/a")
        with pytest.raises(ProtocolError, match="br"):
            http.get(endpoint(server.url), "/b")


def test_refused_connection(http: HttpClient) -> None:
    with pytest.raises(ConnectFailedError, match="refused") as caught:
        http.get(endpoint(f"http://127.0.0.1:{free_port()}"), "/a")
    assert caught.value.refused


def test_unknown_host(http: HttpClient) -> None:
    # .invalid never resolves (RFC 6761)
    with pytest.raises(ConnectFailedError) as caught:
        http.get(endpoint("http://engine.invalid:8000"), "/a")
    assert not caught.value.refused


def test_full_backlog_is_no_refusal() -> None:
    # A listener that never accepts: once its backlog is full, Linux leaves further connections unanswered.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        settings = CollectorSettings(request_timeout_seconds=5)
        with HttpClient(settings, connect_timeout_seconds=0.3) as http, pytest.raises(ConnectFailedError) as caught:
            http.get(endpoint(f"http://127.0.0.1:{port}"), "/a")
        assert not caught.value.refused
        for filler in fillers:
            filler.close()


def test_a_process_that_is_killed_between_two_requests(http: HttpClient, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"/a": {"body": "first", "content_type": "text/plain"}}))
    command = [sys.executable, "-m", "tests.support.engine_server", str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert http.get(endpoint(url), "/a").body == b"first"
        process.kill()
        process.wait(10)
    with pytest.raises(ConnectFailedError) as caught:
        http.get(endpoint(url), "/a")
    assert caught.value.refused
