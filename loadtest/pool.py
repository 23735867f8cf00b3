"""The connections to one endpoint."""

from __future__ import annotations

import asyncio
import ssl
from time import perf_counter
from urllib.parse import urlsplit

from loadtest.connection import Connection, Exchange

CONNECT_TIMEOUT_SECONDS = 10.0


class Pool:
    """
    The connections to one endpoint: as many as requests are in flight, kept for the next ones.

    There is no limit but the operating system's; a limit of the client would queue requests unseen.
    """

    def __init__(self, url: str, most_bytes: int, stall_seconds: float) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._most_bytes = most_bytes
        self._stall_seconds = stall_seconds
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._retired_pieces = 0
        self.most_open = 0

    @property
    def pieces(self) -> int:
        """Pieces of bodies that have arrived over all its connections."""
        return self._retired_pieces + sum(c.pieces for c in self._busy) + sum(c.pieces for c in self._idle)

    async def open(self, count: int) -> None:
        """Have at least `count` idle connections, so that the first requests of a stage need not connect."""
        self._drop_closed()
        missing = count - len(self._idle)
        self._idle += await asyncio.gather(*(self._connect() for _ in range(max(0, missing))))
        self._count()

    async def exchange(self, request: bytes) -> Exchange:
        """
        Send a request and wait for its answer. Raises `OSError` when there is no connection.

        A server may close an idle connection in the moment in which it is used again: then, and only when nothing
        came back, the request is sent once more over a new one.
        """
        connection = self._idle_connection() or await self._connect()
        exchange = await self._send(connection, request)
        if exchange.closed_early and exchange.silent and connection.used > 1:
            exchange = await self._send(await self._connect(), request)
        return exchange

    def give_up_stalled(self) -> None:
        """End every request that received nothing for too long."""
        now = perf_counter()
        for connection in list(self._busy):
            exchange = connection.exchange
            if exchange is not None and now - exchange.last_sign_at() > self._stall_seconds:
                connection.give_up(f"nothing was received for {self._stall_seconds:g} s (limits.stall_seconds)")

    def cancel_all(self) -> None:
        """End every request under way; they have no error."""
        for connection in list(self._busy):
            connection.give_up(None)

    def close(self) -> None:
        """Close all connections."""
        self.cancel_all()
        for connection in self._idle:
            connection.close()
        self._idle = []

    async def _send(self, connection: Connection, request: bytes) -> Exchange:
        exchange = Exchange(asyncio.get_running_loop().create_future())
        self._busy.add(connection)
        self._count()
        try:
            connection.send(request, exchange)
            await exchange.finished
        finally:
            self._busy.discard(connection)
            if connection.exchange is not None:
                connection.give_up(None)
            if connection.usable:
                self._idle.append(connection)
            else:
                self._retired_pieces += connection.pieces
        return exchange

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self._retired_pieces += connection.pieces
        return None

    def _drop_closed(self) -> None:
        for connection in self._idle:
            if not connection.usable:
                self._retired_pieces += connection.pieces
        self._idle = [connection for connection in self._idle if connection.usable]

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._most_bytes), self._host, self._port, ssl=self._tls
                )
        except TimeoutError as error:
            raise ConnectionError(f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s") from error
        return connection

    def _count(self) -> None:
        self.most_open = max(self.most_open, len(self._busy) + len(self._idle))
