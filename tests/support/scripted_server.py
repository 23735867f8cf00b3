"""
An OpenAI-compatible server whose every piece and pause is scripted, and that keeps its own record of when it sent them.

`ScriptedServer(reply)` asks `reply` for each POST what to send. It runs in a thread of the test; the load generator is
a process of its own, and `time.perf_counter` reads the same clock in both (CLOCK_MONOTONIC), so times can be compared.
It counts one token a word of the prompt and one more for its beginning.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

DONE = b"data: [DONE]\n\n"


def event(content: Mapping[str, Any]) -> bytes:
    """One server-sent event, as engines write it."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def text(word: str, **more: Any) -> bytes:
    """A chunk of a completion. `finish_reason` goes into its choice, anything else (usage) beside it."""
    choice = {"index": 0, "text": word, "finish_reason": more.pop("finish_reason", None)}
    return event({"object": "text_completion", "choices": [choice], **more})


def delta(finish_reason: str | None = None, **parts: Any) -> bytes:
    """A chunk of a chat."""
    choice = {"index": 0, "delta": parts, "finish_reason": finish_reason}
    return event({"object": "chat.completion.chunk", "choices": [choice]})


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    """The `usage` object."""
    more = {"prompt_tokens_details": details} if details else {}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


def usage_chunk(counts: Mapping[str, Any]) -> bytes:
    """The extra chunk without choices in which vLLM tells the usage."""
    return event({"object": "text_completion", "choices": [], "usage": counts})


@dataclass(slots=True)
class Call:
    """One POST: what was asked, and when what was sent (seconds of `time.perf_counter`)."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    received_at: float
    sent_at: list[float] = field(default_factory=list)  # of each piece, right before it was written

    @property
    def prompt(self) -> str:
        """Its prompt, or the content of its first message."""
        return self.body["prompt"] if "prompt" in self.body else self.body["messages"][0]["content"]

    @property
    def prompt_tokens(self) -> int:
        """As this server counts: a token a word, and one for the beginning."""
        return len(self.prompt.split()) + 1

    @property
    def max_tokens(self) -> int:
        """How many tokens were asked for."""
        return int(self.body.get("max_tokens") or self.body["max_completion_tokens"])


@dataclass(frozen=True, slots=True)
class Reply:
    """
    What to send: pieces, each after its pause in seconds. `end`:

    - `normal`: the body is ended properly, the connection kept
    - `close`: the connection is closed without an end of the body
    - `stall`: nothing more is sent until the client goes away
    - `until_close`: the body has no length, and ends with the connection (HTTP/1.0 style)
    """

    pieces: Sequence[tuple[float, bytes]]
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    end: str = "normal"
    headers: Mapping[str, str] = field(default_factory=dict)


def answer(call: Call, *, first: float = 0.0, each: float = 0.0, tokens: int | None = None) -> Reply:
    """A good answer: a token a chunk, the usage in an extra chunk."""
    count = call.max_tokens if tokens is None else tokens
    pieces = [(first if n == 0 else each, text(f" w{n}")) for n in range(count)]
    end = text("", finish_reason="length") + usage_chunk(usage(call.prompt_tokens, count)) + DONE
    return Reply([*pieces, (0.0, end)])


def stream(*pieces: bytes, pause: float = 0.0, **more: Any) -> Reply:
    """A reply of these pieces, each after the same pause."""
    return Reply([(pause, piece) for piece in pieces], **more)


def document(content: Any, status: int = 200) -> Reply:
    """A reply that is one JSON document."""
    return Reply([(0.0, json.dumps(content).encode())], status, "application/json")


class ScriptedServer:
    """
    Serves POSTs of completions and chats by `reply`, GETs of `gets` (path to body, or what makes it), else 404.

    `calls` are the POSTs in the order in which they came; `measured()` leaves out those of preparation and warm-up.
    """

    def __init__(
        self,
        reply: Callable[[Call], Reply] = answer,
        *,
        gets: Mapping[str, str | Callable[[], str]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.reply = reply
        self.calls: list[Call] = []
        self.connections = 0
        self._gets = {"/v1/models": json.dumps({"data": [{"id": "scripted"}]}), **(gets or {})}
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://localhost:{self.port}"

    def measured(self, least_output_tokens: int = 3) -> list[Call]:
        """The calls for at least so many tokens; preparation asks for two."""
        return [call for call in self.calls if call.max_tokens >= least_output_tokens]

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "localhost", 0, ssl=self._tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection lives on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            found = self._gets.get(path)
            content = (found() if callable(found) else found or "not found").encode()
            kind = "text/plain; version=0.0.4" if path == "/metrics" else "application/json"
            writer.write(_head(200 if found else 404, kind, {}, f"Content-Length: {len(content)}") + content)
            return True
        call = Call(path, headers, json.loads(body), time.perf_counter())
        self.calls.append(call)
        return await self._send(call, self.reply(call), reader, writer)

    async def _send(self, call: Call, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        until_close = reply.end == "until_close"
        length = "Connection: close" if until_close else "Transfer-Encoding: chunked"
        writer.write(_head(reply.status, reply.content_type, reply.headers, length))
        due = time.perf_counter()
        for pause, piece in reply.pieces:
            due += pause
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            call.sent_at.append(time.perf_counter())
            writer.write(piece if until_close else b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if reply.end == "stall":
            await reader.read(1)
        elif reply.end == "normal":
            writer.write(b"0\r\n\r\n")
        return reply.end == "normal"


def _head(status: int, content_type: str, headers: Mapping[str, str], length: str) -> bytes:
    lines: Iterable[str] = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {content_type}",
        length,
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
