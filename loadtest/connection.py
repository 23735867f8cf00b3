"""
HTTP/1.1 towards an engine under load: one connection carries one request at a time and stamps what arrives.

Made for the many small reads of streamed answers: the protocol gets the bytes straight from the event loop, httptools
(the parser of uvicorn) takes off the chunked coding, and nothing is decoded before the answer is complete. It follows
no redirects and reads no proxy variables.
"""

from __future__ import annotations

import asyncio
from array import array
from time import perf_counter
from typing import cast

import httptools


class Exchange:
    """One request and what came back. Times are of `time.perf_counter`; None: did not happen."""

    __slots__ = (
        "arrivals",
        "chunked",
        "closed_early",
        "content_type",
        "done",
        "done_at",
        "encoding",
        "error",
        "finished",
        "has_length",
        "headers_at",
        "pieces",
        "sent_at",
        "size_bytes",
        "status",
    )

    def __init__(self, finished: asyncio.Future[None]) -> None:
        self.finished = finished
        self.sent_at = 0.0
        self.headers_at: float | None = None
        self.done_at: float | None = None
        self.status: int | None = None
        self.content_type = ""
        self.encoding = ""
        self.chunked = False
        self.has_length = False
        self.arrivals = array("d")
        self.pieces: list[bytes] = []
        self.size_bytes = 0
        self.done = False  # the body is complete
        self.closed_early = False  # the connection ended before the body was complete
        self.error: str | None = None

    @property
    def silent(self) -> bool:
        """Whether nothing at all came back."""
        return self.headers_at is None

    def last_sign_at(self) -> float:
        """When anything happened last."""
        return self.arrivals[-1] if self.arrivals else self.headers_at or self.sent_at

    def body(self) -> bytes:
        """All of it that arrived."""
        return b"".join(self.pieces)


class Connection(asyncio.BufferedProtocol):
    """
    One connection. `pieces` counts all pieces of bodies that it ever brought.

    All connections read into one buffer: what is in it is taken out before the event loop reads again. (Without it the
    event loop asks the system for a buffer of 256 KB for each read.)
    """

    _buffer = memoryview(bytearray(65_536))

    def __init__(self, most_bytes: int) -> None:
        self.exchange: Exchange | None = None
        self.used = 0
        self.pieces = 0
        self._most_bytes = most_bytes
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self.exchange is None and self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, exchange: Exchange) -> None:
        """Write a whole request. `exchange.finished` is done when its answer is, however it ended."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self.exchange = exchange
        self.used += 1
        exchange.sent_at = perf_counter()
        self._transport.write(request)

    def give_up(self, why: str | None) -> None:
        """End the request under way with an error (None: it was cancelled) and close."""
        exchange = self.exchange
        if exchange is not None:
            exchange.error = exchange.error or why
            self._now = perf_counter()
            self._finish(exchange)
        self.close()

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what arrives next."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Stamp and parse what arrived."""
        self._now = perf_counter()
        if self.exchange is None:  # bytes that nobody asked for: this connection can't be trusted with a request
            self.close()
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserError as error:
            self.give_up(f"what answered does not speak HTTP properly ({error})")
        except httptools.HttpParserUpgrade:
            self.give_up("the server wants another protocol than HTTP/1.1")

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whomever."""
        exchange = self.exchange
        if exchange is None:
            return
        self._now = perf_counter()
        if exchange.headers_at is not None and not exchange.chunked and not exchange.has_length and exc is None:
            exchange.done = True  # a body that lasts until the connection is closed
        else:
            exchange.closed_early = True
            reason = "was reset" if isinstance(exc, ConnectionError) else "was closed by the server"
            when = "before anything was answered" if exchange.silent else "before the answer was complete"
            exchange.error = exchange.error or f"the connection {reason} {when}"
        self._finish(exchange)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the few headers that matter."""
        exchange = self.exchange
        if exchange is None:
            return
        name = name.lower()
        if name == b"content-type":
            exchange.content_type = value.decode("latin-1").lower()
        elif name == b"transfer-encoding":
            exchange.chunked = b"chunked" in value.lower()
        elif name == b"content-length":
            exchange.has_length = True
        elif name == b"content-encoding":
            exchange.encoding = value.decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """The status is known."""
        exchange = self.exchange
        status = self._parser.get_status_code()
        if exchange is None or status < 200:  # 100 Continue and the like: the answer is still to come
            return
        exchange.status = status
        exchange.headers_at = self._now
        if exchange.encoding not in ("", "identity"):
            exchange.error = f"the answer is encoded as {exchange.encoding[:40]!r}, which was not asked for"

    def on_body(self, body: bytes) -> None:
        """A piece of the body, as stamped."""
        exchange = self.exchange
        if exchange is None:
            return
        exchange.arrivals.append(self._now)
        exchange.pieces.append(body)
        exchange.size_bytes += len(body)
        self.pieces += 1
        if exchange.size_bytes > self._most_bytes:
            self.give_up(f"the answer is longer than {self._most_bytes:,} bytes (limits.answer_bytes)")

    def on_message_complete(self) -> None:
        """The whole answer is there."""
        exchange = self.exchange
        if exchange is None or exchange.headers_at is None:
            return
        exchange.done = True
        keep = self._parser.should_keep_alive() and (exchange.chunked or exchange.has_length)
        self._finish(exchange)
        if not keep:
            self.close()

    def _finish(self, exchange: Exchange) -> None:
        self.exchange = None
        exchange.done_at = self._now
        if not exchange.finished.done():
            exchange.finished.set_result(None)
