"""
A fast stand-in for an engine that streams: `python -m benchmarks.mock_engine SECONDS`.

Each stream gets one chunk of one token every SECONDS, all streams in the same moment, as an engine's steps do; a chunk
has the size and shape of vLLM's and says when it was written (`time.perf_counter`, one clock for all processes). Prints
its URL and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

CHUNK = (
    b'data: {"id":"cmpl-9d0c6a7f1b3e4c5d8e9f0a1b2c3d4e5f","object":"text_completion","created":1796099042,'
    b'"model":"mock","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null,"stop_reason":null}],'
    b'"sent":%.9f}\n\n'
)
USAGE = (
    b'data: {"id":"cmpl-9d0c6a7f1b3e4c5d8e9f0a1b2c3d4e5f","object":"text_completion","created":1796099042,'
    b'"model":"mock","choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}\n\n'
)
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Stream(asyncio.Protocol):
    """One connection."""

    active: set[Stream] = set()  # noqa: RUF012

    def __init__(self) -> None:
        self.received = b""
        self.left = self.asked = self.prompt_tokens = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.active.discard(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(body) < length:
            return
        self.received = body[length:]
        if head.startswith(b"POST /v1/completions"):
            asked = json.loads(body[:length])
            self.prompt_tokens = len(asked["prompt"]) // 5 if isinstance(asked["prompt"], str) else len(asked["prompt"])
            self.left = self.asked = int(asked.get("max_tokens") or asked["max_completion_tokens"])
            self.transport.write(HEAD)
            self.active.add(self)
        else:
            content = b'{"object":"list","data":[{"id":"mock","object":"model"}]}'
            status = b"200 OK" if b"/v1/models" in head else b"404 Not Found"
            self.transport.write(b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n" % status)
            self.transport.write(b"content-length: %d\r\n\r\n%b" % (len(content), content))

    def step(self) -> None:
        """One token."""
        self.left -= 1
        data = chunk(CHUNK % time.perf_counter())
        if self.left == 0:
            total = self.prompt_tokens + self.asked
            data += chunk(USAGE % (self.prompt_tokens, total, self.asked)) + chunk(DONE) + b"0\r\n\r\n"
            self.active.discard(self)
        self.transport.write(data)


async def serve(seconds: float) -> None:
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stream, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    ended = loop.run_in_executor(None, sys.stdin.read)
    due = time.perf_counter()
    while not ended.done():
        due = max(due + seconds, time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())
        for stream in list(Stream.active):
            stream.step()
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
