"""
A scriptable HTTP server on loopback that stands in for an engine, good or bad.

In a test: `with EngineServer({"/metrics": Answer(body=...)}) as server: ... server.url`.
As a process of its own: `python -m tests.support.engine_server SCRIPT.json`, where the script maps
paths to the fields of `Answer` (`body_file` names a file, relative to the script); it prints its URL
and serves until its standard input ends.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

PAYLOADS = Path(__file__).parents[1] / "fixtures" / "payloads"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """
    What one path answers. `behaviour`:

    - `normal`: as written
    - `hang`: accepts the request and says nothing more
    - `drip`: sends its headers one byte at a time, each after a tenth of a second
    - `stall`: sends the headers and half of the body, then nothing
    - `truncate`: promises the whole body, sends half of it and closes
    - `close`: closes without an answer
    - `close_first`: closes the first time, answers as written from then on
    - `garbage`: answers with bytes that are no HTTP
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    behaviour: str = "normal"
    gzipped: bool = False


def payload(name: str, content_type: str | None = None, **fields: Any) -> Answer:
    """An answer with the body of a file in tests/fixtures/payloads."""
    kind = content_type or ("application/json" if name.endswith(".json") else TEXT)
    return Answer(body=(PAYLOADS / name).read_bytes(), content_type=kind, **fields)


def document(value: Any, **fields: Any) -> Answer:
    """An answer with a JSON body."""
    return Answer(body=json.dumps(value).encode(), **fields)


class EngineServer:
    """Serves `answers` by path (with query); any other path is 404. `answers` may be changed while it runs."""

    def __init__(self, answers: Mapping[str, Answer], *, server: str = "uvicorn") -> None:
        self.answers = dict(answers)
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # method, path, headers
        self._ended = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _handler(self, server))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def paths(self) -> list[str]:
        """The paths that were asked for, in order."""
        return [path for _, path, _ in self.requests]

    def __enter__(self) -> EngineServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving and end what hangs."""
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()

    def wait_for_end(self, seconds: float | None = None) -> bool:
        """Wait until the server is being closed; how a hanging answer hangs."""
        return self._ended.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of what is tested; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(owner: EngineServer, server: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def version_string(self) -> str:
            return server

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):  # every method is recorded and answered alike
                return self.any_method
            raise AttributeError(name)

        def any_method(self) -> None:
            owner.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            missing = Answer(404, b'{"detail":"Not Found"}')
            answer = owner.answers.get(self.path, missing)
            if answer.behaviour == "close_first" and owner.paths.count(self.path) == 1:
                self.close_connection = True
                return
            with contextlib.suppress(ConnectionError):
                self.answer(answer)

        def answer(self, answer: Answer) -> None:
            if answer.behaviour in ("close", "garbage", "hang", "drip"):
                self.close_connection = True
                if answer.behaviour == "garbage":
                    self.wfile.write(b"\x00\x01 what is HTTP?\r\n\r\n")
                elif answer.behaviour == "hang":
                    owner.wait_for_end()
                elif answer.behaviour == "drip":
                    self.drip()
                return
            body = gzip.compress(answer.body) if answer.gzipped else answer.body
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            if answer.gzipped:
                self.send_header("Content-Encoding", "gzip")
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if answer.behaviour in ("truncate", "stall"):
                self.close_connection = True
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                if answer.behaviour == "stall":
                    owner.wait_for_end()
                else:
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.wfile.write(body)

        def drip(self) -> None:
            for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 10_000:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if owner.wait_for_end(0.1):
                    return

        def log_message(self, *_: object) -> None:
            """Silence."""

    return Handler


def _main(script: Path) -> None:
    answers = {}
    for path, fields in json.loads(script.read_text()).items():
        file = fields.pop("body_file", None)
        body = (script.parent / file).read_bytes() if file else fields.pop("body", "").encode()
        answers[path] = Answer(body=body, **fields)
    with EngineServer(answers) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
