"""
One thread a source, each on its own monotonic deadlines.

A slow source never delays another. A tick that was missed is skipped, not queued. Every run
leaves a `SourceHealth` row: how long it took, how late it began, what went wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import structlog

from store.model import Row, SourceHealth, SourceState
from store.protocol import Sink

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a source gave. `state` is an `EngineState` or a `SourceState`."""

    rows: Sequence[Row]
    state: str
    detail: str | None = None
    next_in_seconds: float | None = None  # back-off: seconds until the next run; None: the usual interval
    finished: bool = False  # True: the source is gone; its thread ends after this run


class Source(Protocol):
    """Something that is sampled on a schedule by one thread."""

    @property
    def source_id(self) -> str:
        """Its name in `source_health`."""

    @property
    def kind(self) -> str:
        """engine | device | host | discovery."""

    @property
    def interval_seconds(self) -> float:
        """Seconds between the starts of two runs."""

    @property
    def found_by(self) -> str | None:
        """How it was found, for a person."""

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Sample once. `ts` is the wall clock (UTC) and `monotonic_seconds` the monotonic one at the same moment."""


class Scheduler:
    """Runs sources until `stop`. Sources may be added and removed while it runs; all methods are thread-safe."""

    def __init__(self, sink: Sink, host: str) -> None:
        self._sink = sink
        self._host = host
        self._workers: dict[str, _Worker] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def add(self, source: Source) -> None:
        """Start sampling `source` at once. A running source of the same name is left alone."""
        with self._lock:
            running = self._workers.get(source.source_id)
            if self._stopping or (running is not None and running.is_alive()):
                return
            worker = _Worker(source, self._sink, self._host)
            self._workers[source.source_id] = worker
            worker.start()

    def remove(self, source_id: str) -> None:
        """Stop sampling a source after its current run."""
        with self._lock:
            worker = self._workers.pop(source_id, None)
        if worker is not None:
            worker.stop_event.set()

    def stop(self, timeout_seconds: float = 15.0) -> list[str]:
        """Stop all sources; returns the names of those that still ran after `timeout_seconds`."""
        with self._lock:
            self._stopping = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.stop_event.set()
        deadline = time.monotonic() + timeout_seconds
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        return [w.source.source_id for w in workers if w.is_alive()]


class _Worker(threading.Thread):
    def __init__(self, source: Source, sink: Sink, host: str) -> None:
        super().__init__(name=f"source {source.source_id}", daemon=True)
        self.source = source
        self.stop_event = threading.Event()
        self._sink = sink
        self._host = host

    def run(self) -> None:
        due = time.monotonic()
        while not self.stop_event.wait(max(0.0, due - time.monotonic())):
            began = time.monotonic()
            ts = datetime.now(UTC)
            outcome = self._run_once(ts, began)
            ended = time.monotonic()
            health = SourceHealth(
                ts=ts,
                host=self._host,
                source_id=self.source.source_id,
                kind=self.source.kind,
                state=outcome.state,
                duration_seconds=round(ended - began, 6),  # more digits would only fill the disk
                lateness_seconds=round(began - due, 6),
                interval_seconds=self.source.interval_seconds,
                detail=outcome.detail,
                found_by=self.source.found_by,
            )
            self._sink.put([*outcome.rows, health])
            if outcome.finished:
                return
            due = next_due(due, ended, outcome.next_in_seconds or self.source.interval_seconds)

    def _run_once(self, ts: datetime, began: float) -> Outcome:
        try:
            return self.source.run(ts, began)
        except Exception as fault:  # a fault of ours in one source must not end its sampling
            log.exception("source failed", source=self.source.source_id)
            text = f"Engine Room failed while sampling this: {type(fault).__name__}: {fault}. Please report it."
            return Outcome(rows=(), state=SourceState.ERROR, detail=text)


def next_due(due: float, now: float, interval_seconds: float) -> float:
    """The first deadline after `now` on the grid `due + k * interval`: missed ticks are skipped, not queued."""
    missed = max(0.0, now - due) // interval_seconds
    return due + (missed + 1) * interval_seconds
