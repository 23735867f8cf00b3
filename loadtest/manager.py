"""
The load tests of a collector: started, waiting their turn, stopped, and their records taken in.

One load test at a time uses an engine; a later one waits for it, in the order in which they were asked for. Each run
that the collector starts is a child process (`loadtest.worker_process`), so that nothing else disturbs what is
measured. Runs of the command line send their records here. Commands and what they answer: `store.protocol`.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from loadtest import endpoints
from loadtest.endpoints import Known
from loadtest.ingest import ENDED, Run, Stage
from loadtest.spec import Spec
from loadtest.worker_process import COMMAND, Worker
from settings import Settings
from store.loadtest_rows import LoadtestJudgement, LoadtestRun
from store.model import EngineState, Epoch, Row
from store.protocol import Command, RefusedError, Sink, Store, StoreError, UnknownQueryError

_LOG = structlog.get_logger(__name__)
SILENT_SECONDS = 30.0  # a run of the command line that said nothing for so long is over
STOP_SECONDS = 12.0  # what the end of the collector waits for its runs
AFTER_STAGES_SECONDS = 60.0  # what a run waits for what the store has to say about its stages
MOST_WAITING = 20
KEPT_AFTER_END = 20  # ended runs whose last state `loadtest_status` still tells
FLUSH_AFTER_ROWS = 5000
_RUN_ID = re.compile(r"[0-9A-Za-z._-]{1,64}\Z")

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

    `known` lists what may be loaded, `epoch_of` tells the newest life of an engine, `after_stage` what the store has
    to say about a stage that is over. `reads` answers named queries.
    """

    def __init__(
        self,
        settings: Settings,
        sink: RowSink,
        reads: Store,
        known: Callable[[], Sequence[Known]],
        epoch_of: Callable[[str], Epoch | None],
        after_stage: AfterStage,
        worker_command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings, self._sink, self._reads = settings, sink, reads
        self._known, self._epoch_of, self._after_stage = known, epoch_of, after_stage
        self._worker_command = worker_command
        self._lock = threading.RLock()
        self._held: dict[str, _Held] = {}  # in the order in which they were asked for, ended ones among them
        self._closing = threading.Event()
        self._jobs = ThreadPoolExecutor(1, "loadtest resources")
        self._watch = threading.Thread(target=self._watch_silence, name="loadtest watch", daemon=True)
        _interrupt_left_over(reads, sink, settings.host)
        self._watch.start()

    @property
    def commands(self) -> Mapping[str, Command]:
        """The commands of load tests by name."""
        return {
            "loadtest_start": self._start,
            "loadtest_begin": self._begin_elsewhere,
            "loadtest_records": self._take_records,
            "loadtest_status": self._status,
            "loadtest_stop": self._stop,
        }

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

    # ---- commands ----------------------------------------------------------------------------

    def _start(self, given: dict[str, Any]) -> dict[str, Any]:
        known = self._known()
        spec = endpoints.from_page(given.get("spec"), known, self._settings.prompt_folders)
        self._refuse_stopped(endpoints.match(spec, known))
        run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        held = self._new(run_id, given, spec, known, local=True)
        with self._lock:
            self._add(held)
            self._advance()
            return self._told(held.run)

    def _begin_elsewhere(self, given: dict[str, Any]) -> dict[str, Any]:
        run_id = given.get("run_id")
        if not isinstance(run_id, str) or not _RUN_ID.match(run_id):
            raise UnknownQueryError("run_id must be given, as up to 64 letters, digits, '.', '_' and '-'")
        held = self._new(run_id, given, endpoints.checked(given.get("spec")), self._known(), local=False)
        with self._lock:
            if run_id in self._held or self._stored(run_id) is not None:
                raise RefusedError(f"there is a load test {run_id} already")
            blocker = self._blocker(held.run)
            if blocker is not None:
                raise RefusedError(
                    f"load test {blocker.name!r} ({blocker.run_id}) {_verb(blocker)} on the same engine; wait until it "
                    "has ended, or stop it"
                )
            self._add(held)
            held.run.begin()
            return self._told(held.run)

    def _take_records(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take lines of a run of the command line; `stop` tells it that somebody wants it to stop."""
        lines = given.get("lines")
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise UnknownQueryError("lines must be a list of text")
        with self._lock:
            held = self._held.get(str(given.get("run_id")))
            if held is None or held.local or held.run.ended:
                raise RefusedError("the collector does not (or no longer) follow this run; it stays a run of its own")
            held.heard = time.monotonic()
        for number, line in enumerate(lines, 1):
            held.run.take(line)
            if number % FLUSH_AFTER_ROWS == 0:
                self._flush()
        if held.run.end_told is not None and held.thread is None:
            held.thread = threading.Thread(target=self._finish, args=(held,), name="loadtest run", daemon=True)
            held.thread.start()
        return {**self._told(held.run), "stop": held.stop_asked is not None}

    def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        run_id = given.get("run_id")
        with self._lock:
            runs = [held.run for held in self._held.values() if run_id is None or held.run.run_id == run_id]
        return {"runs": [run.status() for run in runs]}

    def _stop(self, given: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            held = self._held.get(str(given.get("run_id")))
            if held is None or held.run.ended:
                raise RefusedError("this load test has ended already")
            self._ask_to_stop(held, None)
            return self._told(held.run)

    # ---- carrying out ------------------------------------------------------------------------

    def _new(self, run_id: str, given: Mapping[str, Any], spec: Spec, known: Sequence[Known], *, local: bool) -> _Held:
        run = Run(
            run_id,
            _name(given.get("name"), spec),
            spec,
            endpoints.match(spec, known),
            host=self._settings.host,
            started_by="page" if local else "command line",
            sink=self._sink,
            epoch_of=self._epoch_of,
            stage_ended=self._stage_ended,
        )
        return _Held(run, local)

    def _add(self, held: _Held) -> None:
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
            for number, line in enumerate(worker.lines(), 1):
                held.run.take(line)
                if number % FLUSH_AFTER_ROWS == 0:
                    self._flush()
            self._finish(held, worker.wait())
        except Exception as error:  # noqa: BLE001 - whatever it is: the run ends, and the next one has its turn
            _LOG.exception("loadtest_run", run_id=held.run.run_id)
            self._end(held, "failed", f"its records could not be taken in: {error}")
        finally:
            worker.kill()

    def _finish(self, held: _Held, problem: str | None = None) -> None:
        """Its worker has said all that it had to say."""
        deadline = time.monotonic() + AFTER_STAGES_SECONDS
        for job in held.after_stages:
            with contextlib.suppress(Exception):  # what it was is in the log
                job.result(0 if self._closing.is_set() else max(0.0, deadline - time.monotonic()))
        told = held.run.end_told
        if told is None:
            state = "failed" if held.stop_asked is None else "stopped"
            self._end(held, state, problem or "the load generator ended without a word")
            return
        detail = told.detail or held.stop_asked or None
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

    # ---- small ones --------------------------------------------------------------------------

    def _refuse_stopped(self, known: Sequence[Known | None]) -> None:
        states = {row["engine_id"]: row for row in self._reads.query("overview").to_pylist()}
        for k in known:
            row = states.get(k.engine.engine_id) if k is not None and k.engine is not None else None
            if k is not None and row is not None and row["state"] in (EngineState.STOPPED, EngineState.UNREACHABLE):
                raise RefusedError(f"{k.label} is {row['state']}; start it first, then the load test")

    def _stored(self, run_id: str) -> dict[str, Any] | None:
        runs = self._reads.query("loadtest_runs", {"limit": 100_000}).to_pylist()
        return next((row for row in runs if row["run_id"] == run_id), None)

    def _flush(self) -> None:
        with contextlib.suppress(StoreError):  # a full disk: the writer's own state tells it
            self._sink.flush()

    def _told(self, run: Run) -> dict[str, Any]:
        waits_for = run.waits_for.run_id if run.waits_for else None
        return {"run_id": run.run_id, "state": run.state, "waits_for": waits_for, "detail": run.detail}


def _verb(run: Run) -> str:
    return "waits for its turn" if run.state == "waiting" else "runs"


def _name(given: object, spec: Spec) -> str:
    if isinstance(given, str) and given.strip():
        if len(given.strip()) > 200:
            raise UnknownQueryError("the name of a load test may have 200 characters at most")
        return given.strip()
    return " and ".join(endpoint.name for endpoint in spec.endpoints)[:200]


def _interrupt_left_over(reads: Store, sink: Sink, host: str) -> None:
    """Runs that were not over when the last collector died are over now."""
    for row in reads.query("loadtest_runs", {"limit": 100_000}).to_pylist():
        if row["state"] in ENDED or row["state"] == "imported" or row["host"] != host:
            continue
        stages = reads.query("loadtest_stages", {"run_id": row["run_id"]}).to_pylist()
        verb = "waited" if row["state"] == "waiting" else "ran"
        sink.put(
            [
                LoadtestRun(
                    **{
                        **row,
                        "ts": datetime.now(UTC),
                        "state": "interrupted",
                        "ended": max((stage["ended"] for stage in stages), default=None),
                        "detail": f"the collector ended while it {verb}; the {len(stages)} stages until then are whole",
                    }
                )
            ]
        )
