"""How the load generator itself fares: a person must be able to tell a slow engine from a slow client."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from loadtest.connection import Connection, Exchange
from loadtest.timing import ClientFigures

_TICK_SECONDS = 0.01
_CEILING_STREAMS, _CEILING_ROUNDS = 32, 60


class Meter:
    """Measures while it is entered: the lag of the event loop and the CPU time of this process."""

    def __init__(self) -> None:
        self._lags = array("d")
        self._began = self._began_cpu = 0.0
        self.seconds = self.cpu_seconds = 0.0

    async def __aenter__(self) -> Meter:
        self._began, self._began_cpu = time.perf_counter(), time.process_time()
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._began_cpu
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _tick(self) -> None:
        while True:
            due = time.perf_counter() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            self._lags.append(max(0.0, time.perf_counter() - due))

    def figures(
        self, lateness_seconds: Sequence[float], connections: int, pieces: int, ceiling: float | None, held_back: int
    ) -> ClientFigures:
        """What was measured, with what the stage counted."""
        return ClientFigures(
            seconds=self.seconds,
            cpu_fraction=self.cpu_seconds / self.seconds if self.seconds else 0.0,
            lag_p99_seconds=_p99(self._lags),
            lag_max_seconds=max(self._lags, default=None),
            lateness_p99_seconds=_p99(lateness_seconds),
            lateness_max_seconds=max(lateness_seconds, default=None),
            connections=connections,
            connection_limit=connection_limit(),
            chunks_per_second=pieces / self.seconds if self.seconds else None,
            ceiling_chunks_per_second=ceiling,
            held_back=held_back,
        )


def whole(stages: Sequence[ClientFigures]) -> ClientFigures | None:
    """The figures of a run: sums and worsts of those of its stages. None when there is none."""
    if not stages:
        return None
    seconds = sum(stage.seconds for stage in stages)

    def mean(values: Sequence[float | None]) -> float:
        return sum((value or 0.0) * stage.seconds for value, stage in zip(values, stages, strict=True)) / seconds

    def worst(values: Sequence[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return ClientFigures(
        seconds=seconds,
        cpu_fraction=mean([stage.cpu_fraction for stage in stages]),
        lag_p99_seconds=worst([stage.lag_p99_seconds for stage in stages]),
        lag_max_seconds=worst([stage.lag_max_seconds for stage in stages]),
        lateness_p99_seconds=worst([stage.lateness_p99_seconds for stage in stages]),
        lateness_max_seconds=worst([stage.lateness_max_seconds for stage in stages]),
        connections=max(stage.connections for stage in stages),
        connection_limit=stages[0].connection_limit,
        chunks_per_second=mean([stage.chunks_per_second for stage in stages]),
        ceiling_chunks_per_second=stages[0].ceiling_chunks_per_second,
        held_back=sum(stage.held_back for stage in stages),
    )


def connection_limit() -> int | None:
    """How many connections the operating system lets this process open; None: no limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else max(0, limit - 64)  # what else it has open


def raise_connection_limit() -> None:
    """Ask for as many connections as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def ceiling_chunks_per_second() -> float:
    """
    Chunks that this client takes in per second at most, on this machine now: a lower bound.

    Streams of one chunk a read, written by this very process, whose time for writing counts as well.
    """
    loop = asyncio.get_running_loop()
    event = b"data: " + json.dumps({"choices": [{"index": 0, "text": " a token"}], "id": "x" * 200}).encode() + b"\n\n"
    chunk = b"%x\r\n%b\r\n" % (len(event), event)
    streams = []
    for _ in range(_CEILING_STREAMS):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection = Connection(2**60)
        await loop.create_connection(lambda connection=connection: connection, sock=ours)  # type: ignore[misc]
        exchange = Exchange(loop.create_future())
        connection.send(b"", exchange)
        theirs.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        streams.append((connection, exchange, theirs))
    await asyncio.sleep(0)
    began = time.perf_counter()
    for _ in range(_CEILING_ROUNDS):
        for _, _, theirs in streams:
            theirs.send(chunk)
        await asyncio.sleep(0)
    while sum(len(exchange.arrivals) for _, exchange, _ in streams) < _CEILING_STREAMS * _CEILING_ROUNDS:
        await asyncio.sleep(0)
    seconds = time.perf_counter() - began
    for connection, _, theirs in streams:
        connection.close()
        theirs.close()
    return _CEILING_STREAMS * _CEILING_ROUNDS / seconds


def _p99(values: Sequence[float]) -> float | None:
    """The smallest value that 99 of 100 do not exceed; None of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else None
