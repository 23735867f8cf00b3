"""
The load tests of a collector: started, waiting their turn, stopped, and their records taken in.

One load test at a time uses an engine; a later one waits for it, in the order in which they were asked for. Each run
that the collector starts is a child process (`loadtest.worker_process`), so that nothing else disturbs what is
measured. Runs of the command line send their records here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from loadtest.endpoints import Known
from loadtest.ingest import ENDED, Run, Stage
from loadtest.spec import Spec
from loadtest.worker_process import COMMAND, Worker
from settings import Settings
from store.loadtest_rows import LoadtestJudgement
from store.model import Epoch, Row
from store.protocol import RefusedError, Sink, StoreError

_LOG = structlog.get_logger(__name__)
SILENT_SECONDS = 120.0  # a run of the command line that said nothing for so long is over; finding out how long prompts
# are says nothing for as long as a slow engine needs
STOP_SECONDS = 12.0  # what the end of the collector waits for its runs
AFTER_STAGES_SECONDS = 60.0  # what a run waits for what the store has to say about its stages
MOST_WAITING = 20
KEPT_AFTER_END = 20  # ended runs whose last state `loadtest_status` still tells
FLUSH_AFTER_ROWS = 5000
FLUSH_SECONDS = 5.0

AfterStage = Callable[[Run, Stage], Sequence[Row]]


class RowSink(Sink, Protocol):
    """A sink that can also wait until its rows are stored."""

    def flush(self, timeout_seconds: float = ...) -> None:
        """Block until every row that was put before is stored. Raises `StoreError`."""


@dataclass(slots=True)
class _Held:
    """A run and what the manager knows of how it is carried out."""

    run: Run
    local: bool  # by a worker of this collector
    worker: Worker | None = None
    thread: threading.Thread | None = None
    stop_asked: str | None = None  # why: the detail of its end
    heard: float = field(default_factory=time.monotonic)
    after_stages: list[Future[None]] = field(default_factory=list)


class Manager:
    """
    See the module. Thread-safe.

    `epoch_of` tells the newest life of an engine, `after_stage` what the store has to say about a stage that is over.
    """

    def __init__(
        self,
        settings: Settings,
        sink: RowSink,
        epoch_of: Callable[[str], Epoch | None],
        after_stage: AfterStage,
        worker_command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings, self._sink = settings, sink
        self._epoch_of, self._after_stage = epoch_of, after_stage
        self._worker_command = worker_command
        self._lock = threading.RLock()
        self._held: dict[str, _Held] = {}  # in the order in which they were asked for, ended ones among them
        self._closing = threading.Event()
        self._jobs = ThreadPoolExecutor(1, "loadtest resources")
        self._watch = threading.Thread(target=self._watch_silence, name="loadtest watch", daemon=True)
        self._watch.start()

    def add(self, run_id: str, name: str, spec: Spec, known: Sequence[Known | None]) -> Run:
        """Carry out a load test by a worker, now or when its turn comes. Raises `RefusedError`."""
        held = self._new(run_id, name, spec, known, local=True)
        with self._lock:
            self._keep(held)
            self._advance()
        self._flush()
        return held.run

    def follow(self, run_id: str, name: str, spec: Spec, known: Sequence[Known | None]) -> Run:
        """Take in a load test that somebody else carries out. Raises `RefusedError` where an engine is in use."""
        held = self._new(run_id, name, spec, known, local=False)
        with self._lock:
            if run_id in self._held:
                raise RefusedError(f"there is a load test {run_id} already")
            blocker = self._blocker(held.run)
            if blocker is not None:
                verb = "waits for its turn" if blocker.state == "waiting" else "runs"
                raise RefusedError(
                    f"load test {blocker.name!r} ({blocker.run_id}) {verb} on the same engine; wait until it has "
                    "ended, or stop it"
                )
            self._keep(held)
            held.run.begin()
        self._flush()
        return held.run

    def take(self, run_id: str, lines: Sequence[str]) -> tuple[Run, bool]:
        """Take lines of a run that is followed; also tells whether somebody wants it to stop. Raises `RefusedError`."""
        with self._lock:
            held = self._held.get(run_id)
            if held is None or held.local or held.run.ended:
                raise RefusedError("the collector does not (or no longer) follow this run; it stays a run of its own")
            held.heard = time.monotonic()
        self._take_all(held, lines)
        if held.run.end_told is not None and held.thread is None:
            held.thread = threading.Thread(target=self._finish, args=(held,), name="loadtest run", daemon=True)
            held.thread.start()
        return held.run, held.stop_asked is not None

    def runs(self) -> list[Run]:
        """Runs that wait, go on or ended recently, as they were asked for."""
        with self._lock:
            return [held.run for held in self._held.values()]

    def stop(self, run_id: str) -> Run:
        """Ask a run to stop; what it measured stays. Returns at once. Raises `RefusedError` when it has ended."""
        with self._lock:
            held = self._held.get(run_id)
            if held is None or held.run.ended:
                raise RefusedError("this load test has ended already")
            self._ask_to_stop(held, None)
        self._flush()
        return held.run

    def close(self) -> None:
        """Stop all runs, keep what they measured, and take no others."""
        self._closing.set()
        with self._lock:
            held = [h for h in self._held.values() if not h.run.ended]
            for h in held:
                self._ask_to_stop(h, "the collector was stopped")
        deadline = time.monotonic() + STOP_SECONDS
        for h in held:
            if h.thread is not None:
                h.thread.join(max(0.0, deadline - time.monotonic()))
                if h.thread.is_alive() and h.worker is not None:
                    h.worker.kill()
                    h.thread.join(2)
            elif not h.run.ended:
                self._end(h, "interrupted", "the collector was stopped while the command line ran it")
        self._watch.join(2)
        self._jobs.shutdown(wait=False, cancel_futures=True)

    def _new(self, run_id: str, name: str, spec: Spec, known: Sequence[Known | None], *, local: bool) -> _Held:
        run = Run(
            run_id,
            name,
            spec,
            known,
            host=self._settings.host,
            started_by="page" if local else "command line",
            sink=self._sink,
            epoch_of=self._epoch_of,
            stage_ended=self._stage_ended,
        )
        return _Held(run, local)

    def _keep(self, held: _Held) -> None:
        """The caller holds the lock."""
        if self._closing.is_set():
            raise RefusedError("the collector is being stopped; start the load test again when it is back")
        if sum(other.run.state == "waiting" for other in self._held.values()) >= MOST_WAITING:
            raise RefusedError(f"{MOST_WAITING} load tests wait already; stop some of them first")
        ended = [run_id for run_id, other in self._held.items() if other.run.ended]
        for run_id in ended[: max(0, len(ended) - KEPT_AFTER_END)]:
            del self._held[run_id]
        self._held[held.run.run_id] = held

    def _blocker(self, run: Run) -> Run | None:
        """The first run before it that uses one of its engines and has not ended. The caller holds the lock."""
        for other in self._held.values():
            if other.run is run:
                return None
            if not other.run.ended and other.run.keys & run.keys:
                return other.run
        return None

    def _advance(self) -> None:
        """Start every run whose turn it is. The caller holds the lock."""
        if self._closing.is_set():
            return
        for held in self._held.values():
            if held.run.state != "waiting":
                continue
            blocker = self._blocker(held.run)
            if blocker is not None:
                held.run.wait_for(blocker)
                continue
            held.run.begin()
            held.thread = threading.Thread(target=self._carry_out, args=(held,), name="loadtest run", daemon=True)
            held.thread.start()

    def _carry_out(self, held: _Held) -> None:
        hidden = [target.api_key_env for target in self._settings.target if target.api_key_env]
        try:
            worker = Worker(held.run.spec, hidden, self._worker_command)
        except OSError as error:
            self._end(held, "failed", f"the load generator can't be started: {error}")
            return
        with self._lock:
            held.worker = worker
            if held.stop_asked is not None:
                worker.stop()
        try:
            self._take_all(held, worker.lines())
            self._finish(held, worker.wait())
        except Exception as error:  # noqa: BLE001 - whatever it is: the run ends, and the next one has its turn
            _LOG.exception("loadtest_run", run_id=held.run.run_id)
            self._end(held, "failed", f"its records could not be taken in: {error}")
        finally:
            worker.kill()

    def _take_all(self, held: _Held, lines: Iterable[str | bytes]) -> None:
        for number, line in enumerate(lines, 1):
            held.run.take(line)
            if number % FLUSH_AFTER_ROWS == 0:
                self._flush()

    def _flush(self) -> None:
        """What was told until now can be read."""
        with contextlib.suppress(StoreError):  # a full disk: the writer's own state tells it
            self._sink.flush(FLUSH_SECONDS)

    def _finish(self, held: _Held, problem: str | None = None) -> None:
        """Its worker has said all that it had to say."""
        deadline = time.monotonic() + AFTER_STAGES_SECONDS
        for job in held.after_stages:
            with contextlib.suppress(Exception):  # what it was is in the log
                job.result(0 if self._closing.is_set() else max(0.0, deadline - time.monotonic()))
        told = held.run.end_told
        if told is None:
            if held.stop_asked is None:
                self._end(held, "failed", problem or "the load generator ended without a word")
            elif not held.run.has_begun:
                self._end(held, "stopped", held.stop_asked or "stopped before its first request was sent")
            else:
                self._end(held, "stopped", held.stop_asked or problem)
            return
        detail = held.stop_asked or told.detail  # the worker knows only that it was asked to
        if held.run.lines_not_understood:
            lines = f"{held.run.lines_not_understood} lines of the load generator were not understood"
            detail = f"{detail}; {lines}" if detail else lines
        self._end(held, told.state if told.state in ENDED else "failed", detail)

    def _end(self, held: _Held, state: str, detail: str | None) -> None:
        with self._lock:
            if held.run.ended:
                return
            held.run.end(state, detail, judged=held.run.end_told is not None)
            self._advance()
        self._flush()

    def _ask_to_stop(self, held: _Held, why: str | None) -> None:
        """The caller holds the lock."""
        held.stop_asked = why or ""
        if held.run.state == "waiting":
            self._end(held, "stopped", why or "stopped before its turn came")
        elif held.worker is not None:
            held.worker.stop()

    def _stage_ended(self, run: Run, stage: Stage) -> None:
        held = self._held[run.run_id]

        def ask() -> None:
            try:
                for row in self._after_stage(run, stage):
                    if run.ended:  # and perhaps deleted
                        return
                    if isinstance(row, LoadtestJudgement):
                        run.judge(row)
                    else:
                        self._sink.put([row])
            except StoreError as error:
                _LOG.warning("loadtest_stage_resources", run_id=run.run_id, problem=str(error))

        with contextlib.suppress(RuntimeError):  # the collector is being stopped
            held.after_stages.append(self._jobs.submit(ask))

    def _watch_silence(self) -> None:
        """End runs of the command line that nobody tells about any more."""
        while not self._closing.wait(1.0):
            with self._lock:
                silent = [
                    held
                    for held in self._held.values()
                    if not held.local and not held.run.ended and time.monotonic() - held.heard > SILENT_SECONDS
                ]
            for held in silent:
                self._end(held, "interrupted", f"nothing was heard from the command line for {SILENT_SECONDS:g} s")
