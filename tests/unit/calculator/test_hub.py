"""A Hugging Face id against a real HTTP server on loopback, with the hub's routes and status codes; and offline."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from calculator import catalog, hub
from calculator.model import CalculatorError, MalformedModelError, MissingFactError
from tests.support.wait import free_port

CONFIG = json.dumps(dict(catalog.find("Qwen3-8B").config)).encode()
# Path of the hub (huggingface_hub hf_hub_url) -> status, headers, body
ROUTES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/good/model/resolve/main/config.json": (200, {}, CONFIG),
    "/good/odd/resolve/main/config.json": (200, {}, b"<html>"),
    "/good/empty/resolve/main/config.json": (404, {"X-Error-Code": "EntryNotFound"}, b""),
    "/good/gated/resolve/main/config.json": (403, {"X-Error-Code": "GatedRepo"}, b""),
    "/good/broken/resolve/main/config.json": (502, {}, b""),
}


class Handler(BaseHTTPRequestHandler):
    """Answers from `ROUTES`; everything else is not found."""

    def do_GET(self) -> None:
        status, headers, body = ROUTES.get(self.path, (404, {"X-Error-Code": "RepoNotFound"}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@contextmanager
def stand_in() -> Iterator[str]:
    """A hub on loopback; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_repository_gives_its_configuration() -> None:
    with stand_in() as address:
        model = hub.load("good/model", endpoint=address)
    assert model.name == "model"
    assert model.parameters == 8_190_735_360  # safetensors parameter count of Qwen/Qwen3-8B
    assert model.source == f"{address}/good/model/blob/main/config.json"


@pytest.mark.parametrize(
    ("repo", "error", "message"),
    [
        ("good/odd", MalformedModelError, "not JSON"),
        ("good/empty", MissingFactError, r"no config\.json"),
        ("good/gated", CalculatorError, "restricted"),
        ("nobody/nothing", CalculatorError, "no such repository"),
        ("good/broken", CalculatorError, "answered 502"),
        ("not an id", CalculatorError, "owner/name"),
        ("../../etc/passwd", CalculatorError, "owner/name"),
    ],
)
def test_what_the_hub_refuses_is_told(repo: str, error: type[CalculatorError], message: str) -> None:
    with stand_in() as address, pytest.raises(error, match=message):
        hub.load(repo, endpoint=address)


def test_without_a_network_it_says_so() -> None:
    with pytest.raises(CalculatorError, match="the network doesn't allow it; give a folder"):
        hub.load("good/model", endpoint=f"http://127.0.0.1:{free_port()}")
