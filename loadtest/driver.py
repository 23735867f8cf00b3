"""
Who sends when: users that each have one request under way (closed loop), or arrivals by the clock (open loop).

In a closed loop a request is due when its user is free. In an open loop it is due when the schedule says, however busy
the engine is; when the most allowed are in flight it waits here, and its latency from the schedule shows that.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from time import perf_counter
from typing import NamedTuple

from loadtest.caller import Caller
from loadtest.prompts import Prompt
from loadtest.reading import Reading, failed_to_connect
from loadtest.timing import RequestTiming, Window

MOST_UNREAD_BYTES = 256_000_000
MOST_CHUNKS = 20_000_000  # whose times are kept for one stage
_LEAST_FOR_GIVING_UP = 10  # requests
_STEP_SECONDS = 0.2


class _Ready(NamedTuple):
    number: int
    prompt: Prompt
    request: bytes


class Driver:
    """
    Sends the requests of one stage, or of one batch of its warm-up, and keeps their timings.

    `make` gives the prompt of a number. It ends after `most_requests`, after `seconds`, when `stop` is set, or when
    more than `failed_fraction` of at least ten requests failed; `ended_by` says why where it was not as planned. Who
    sets `stop` also ends the requests under way (`Pool.cancel_all`).
    """

    def __init__(
        self,
        caller: Caller,
        make: Callable[[int], Prompt],
        stop: asyncio.Event,
        *,
        most_requests: int | None,
        seconds: float | None = None,
        failed_fraction: float = 1.0,
        output_tokens: int | None = None,
    ) -> None:
        self._caller = caller
        self._make = make
        self._stop = stop
        self._most = most_requests
        self._seconds = seconds
        self._failed_fraction = failed_fraction
        self._output_tokens = output_tokens
        self._ready: deque[_Ready] = deque()
        self._made = 0
        self._unread: asyncio.Queue[tuple[Reading, _Ready, float]] = asyncio.Queue()
        self._unread_bytes = 0
        self._chunks = 0
        self._no_more_at: float | None = None  # when the first user found no more work
        self.origin = perf_counter()
        self.timings: list[RequestTiming] = []
        self.lateness_seconds = array("d")
        self.in_flight = self.failed = self.held_back = self.output_tokens = 0
        self.ended_by: str | None = None

    async def closed(self, users: int) -> Window | None:
        """`users` users, each sending its next request when its last is answered. Gives the steady window."""
        await self._prepare(users)
        self.origin = perf_counter()
        await self._run([self._user() for _ in range(users)])
        first = [t.sent_seconds for t in self.timings if t.request < users and t.sent_seconds is not None]
        end = self._no_more_at
        if len(first) < users or end is None or end - self.origin <= max(first):
            return None
        return Window(max(first), end - self.origin)

    async def open(self, due_seconds: Iterator[float], most_in_flight: int) -> Window | None:
        """Arrivals at the given times. The window: from the first request done until the last one due."""
        await self._prepare(min(32, most_in_flight))
        self.origin = perf_counter()
        last_due = await self._run([self._arrivals(due_seconds, most_in_flight)])
        done = [t.done_seconds for t in self.timings if t.done_seconds is not None]
        if not done or last_due is None or last_due <= min(done):
            return None
        return Window(min(done), last_due)

    async def _run(self, work: list[asyncio._CoroutineLike[float | None]]) -> float | None:
        reader = asyncio.create_task(self._read())
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part) for part in work]
            await self._unread.join()
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        self.timings.sort(key=lambda timing: timing.request)
        return tasks[0].result()

    # Who sends

    async def _user(self) -> None:
        free = perf_counter()
        while (ready := self._next()) is not None:
            await self._one(ready, free, free)
            free = perf_counter()
        if self._no_more_at is None:
            self._no_more_at = free

    async def _arrivals(self, due_seconds: Iterator[float], most_in_flight: int) -> float | None:
        slots = asyncio.Semaphore(most_in_flight)
        last_due: float | None = None
        async with asyncio.TaskGroup() as group:
            for due in due_seconds:
                if self._seconds is not None and due > self._seconds:
                    break
                await self._until(self.origin + due)
                ready = self._next()
                if ready is None:
                    break
                last_due = due
                group.create_task(self._arrival(ready, self.origin + due, slots))
        if self._stop.is_set():
            last_due = min(last_due or 0.0, perf_counter() - self.origin)
        return last_due

    async def _arrival(self, ready: _Ready, due: float, slots: asyncio.Semaphore) -> None:
        free = due
        if slots.locked():
            self.held_back += 1
            await slots.acquire()
            free = perf_counter()
        else:
            await slots.acquire()
        try:
            if not self._stop.is_set():
                await self._one(ready, due, free)
        finally:
            slots.release()

    async def _until(self, at: float) -> None:
        while not self._stop.is_set() and (left := at - perf_counter()) > 0:
            await asyncio.sleep(min(left, _STEP_SECONDS))

    async def _one(self, ready: _Ready, due: float, free: float) -> None:
        """One request; `free` is when it could be sent as far as the schedule goes."""
        asyncio.get_running_loop().call_soon(self._refill)
        self.in_flight += 1
        try:
            exchange = await self._caller.pool.exchange(ready.request)
        except OSError as error:
            self._keep(failed_to_connect(ready.number, ready.prompt, error, due, self.origin))
            await asyncio.sleep(0)
            return
        finally:
            self.in_flight -= 1
        self.lateness_seconds.append(exchange.sent_at - free)
        self._unread_bytes += exchange.size_bytes
        self._unread.put_nowait((Reading(exchange, self._caller.key), ready, due))
        while self._unread_bytes > MOST_UNREAD_BYTES:
            await asyncio.sleep(0.001)

    # What they send

    async def _prepare(self, connections: int) -> None:
        """Open the connections and make the first requests ahead of their time. Raises `OSError`."""
        await self._caller.pool.open(connections)
        for _ in range(2 * connections):
            self._refill()

    def _refill(self) -> None:
        if self._most is not None and self._made >= self._most:
            return
        prompt = self._make(self._made)
        request = self._caller.request(prompt, self._output_tokens or prompt.output_tokens)
        self._ready.append(_Ready(self._made, prompt, request))
        self._made += 1

    def _next(self) -> _Ready | None:
        """The next request; None when there is no more to do."""
        over = self._seconds is not None and perf_counter() - self.origin >= self._seconds
        if over or self._stop.is_set() or self._given_up():
            return None
        if not self._ready:
            self._refill()
        return self._ready.popleft() if self._ready else None

    def _given_up(self) -> bool:
        done = len(self.timings)
        if done >= _LEAST_FOR_GIVING_UP and self.failed > self._failed_fraction * done:
            self.ended_by = self.ended_by or f"{self.failed} of {done} requests failed"
        if self._chunks > MOST_CHUNKS:
            self.ended_by = self.ended_by or f"{MOST_CHUNKS:,} chunks were received, more than are kept of one stage"
        return self.ended_by is not None

    # What comes back

    async def _read(self) -> None:
        """Read answers that are complete, in steps short enough for others to be stamped on time."""
        while True:
            reading, ready, due = await self._unread.get()
            size = reading.exchange.size_bytes
            for _ in reading.steps():
                await asyncio.sleep(0)
            self._keep(reading.timing(ready.number, ready.prompt, due, self.origin))
            self._unread_bytes -= size
            self._unread.task_done()
            await asyncio.sleep(0)

    def _keep(self, timing: RequestTiming) -> None:
        self.timings.append(timing)
        self.failed += timing.status == "error"
        self._chunks += len(timing.chunk_seconds)
        if timing.status == "ok":
            self.output_tokens += timing.output_tokens or 0


def constant(rate: float) -> Iterator[float]:
    """Arrival times of evenly spaced requests, `rate` a second, in seconds."""
    number = 0
    while True:
        yield number / rate
        number += 1


def poisson(rate: float, seed: str) -> Iterator[float]:
    """Arrival times of requests that know nothing of each other, `rate` a second in the mean, in seconds."""
    random = Random(seed)  # noqa: S311
    at = 0.0
    while True:
        yield at
        at += random.expovariate(rate)
