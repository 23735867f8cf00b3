"""
The one writer: samplers put rows into a bounded queue, one thread commits them once a second.

A commit that fails (disk full, an I/O error) loses nothing: its rows go back to the front of the
queue and are tried again each second. Only when the queue reaches its bound are the oldest rows
dropped, and counted. A row that the table cannot hold is put out alone, so that it cannot hold up
the others.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import structlog

from settings import StoreSettings
from store import rollup
from store.batch import ROW_FAULTS, Sorted, newest_time, sort_out, write
from store.checkpoints import Checkpoints
from store.database import file_bytes, open_for_writing, wal_bytes
from store.heartbeat import Heartbeat, find_gap, keep_wal, read_heartbeat, write_heartbeat
from store.model import Event, Row, SourceState
from store.protocol import StoreError

_LOG = structlog.get_logger(__name__)
T = TypeVar("T")

MAX_QUEUED_ROWS = 200_000
COMMIT_INTERVAL_SECONDS = 1.0
RATE_COMMITS = 60  # over how many commits the rate of rows is told
RATE_AT_LEAST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """What a writer has done since it was opened."""

    rows_written: int
    rows_queued: int
    rows_dropped: int  # the oldest ones, when the queue was full
    rows_rejected: int  # ones that their table cannot hold
    commits: int
    last_commit: datetime | None
    last_commit_seconds: float | None  # how long the last commit took
    newest_ts: datetime | None  # newest time of any committed row
    wal_bytes: int


def kept_for(rows_per_second: float | None, waiting_rows: int = 0) -> str:
    """For how long rows are kept in memory while the disk takes none, in words; None: the rate is not known."""
    left = max(0, MAX_QUEUED_ROWS - waiting_rows)
    if not rows_per_second:
        return f"for the next {left:,} rows"
    seconds = left / rows_per_second
    unit, name = next((step for step in ((3600, "h"), (60, "min")) if seconds >= 2 * step[0]), (1, "s"))
    time_left = f"{seconds / unit:.0f} {name}"
    return f"for about {time_left} ({left:,} rows at {rows_per_second:,.0f} a second)"


class Writer:
    """
    Opens the file at `path` (see `store.database.open_for_writing` for what it raises) and starts the thread.

    Any thread may call any method. `cursor()` gives readers their own connection to the same file.
    """

    def __init__(self, path: Path, settings: StoreSettings, *, host: str | None = None) -> None:
        self.path = path
        self._settings = settings
        self._host = host or socket.gethostname()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queue: deque[Row] = deque()
        self._edits: deque[tuple[Callable[[duckdb.DuckDBPyConnection], Any], Future[Any]]] = deque()
        self._in_flight = 0
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=RATE_COMMITS)  # monotonic seconds, rows queued so far
        self._accepted = 0  # rows ever queued; with `_settled` it tells flush() when its rows are through
        self._settled = 0  # rows committed, dropped or rejected
        self._hurry = False
        self._stopping = False
        self._closed = False
        self._written = self._dropped = self._rejected = self._commits = 0
        self._last_commit: datetime | None = None
        self._last_commit_seconds: float | None = None
        self._newest: datetime | None = None
        self._problem: str | None = None
        self._rejection: str | None = None
        self.checkpoints = Checkpoints(path)
        self.rolled_until: datetime | None = None  # samples before it are noted as late, see store.rollup
        self.maintenance_problem: str | None = None
        gap = self._open()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()
        if gap is not None:
            self.put([gap])

    # ---- what samplers call ------------------------------------------------------------------

    def put(self, rows: Sequence[Row]) -> None:
        """Queue rows for the next transaction. Never blocks on the disk and never raises for it."""
        with self._wake:
            if self._closed:
                _LOG.warning("rows_after_close", path=str(self.path), rows=len(rows))
                return
            self._queue.extend(rows)
            self._accepted += len(rows)
            self._trim()

    def flush(self, timeout_seconds: float = 30.0) -> None:
        """
        Block until every row that was queued before is committed.

        Raises `StoreError` when that did not happen in time; the rows stay queued.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._wake:
            goal = self._accepted
            while self._settled < goal:
                self._hurry = True
                self._wake.notify_all()
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    raise StoreError(self._problem or f"{goal - self._settled} rows are not committed yet")
                self._wake.wait(min(left, 0.1))

    def edit(self, change: Callable[[duckdb.DuckDBPyConnection], T], timeout_seconds: float = 30.0) -> T:
        """
        Run `change` in a transaction of its own, after all rows that were queued before; returns what it returns.

        Raises `StoreError` when it failed or had no turn in time; then nothing was changed. What `change` itself
        raises as `StoreError` undoes it and is passed on.
        """
        future: Future[T] = Future()
        with self._wake:
            if self._closed or self._stopping:
                raise StoreError("the store is closed; start the collector again")
            self._edits.append((change, future))
            self._hurry = True
            self._wake.notify_all()
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            if future.cancel():
                problem = self.health()[1] or f"the store had no turn for it within {timeout_seconds:g} s"
                raise StoreError(f"nothing was changed: {problem}") from None
            return future.result()  # it is being made at this moment

    def close(self, timeout_seconds: float = 30.0) -> None:
        """Commit what is queued, fold the write-ahead log into the file and close it. May be called twice."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join(timeout_seconds)

    # ---- what others ask ---------------------------------------------------------------------

    def health(self) -> tuple[SourceState, str | None]:
        """How writing goes, and when it does not go well, what happened and what to do."""
        with self._lock:
            if self._problem is not None:
                return SourceState.ERROR, self._problem
            if self._closed:
                return SourceState.ERROR, "The store is closed; start the collector again."
            notes = [note for note in (self.checkpoints.problem, self.maintenance_problem) if note]
            if self._dropped:
                notes.append(
                    f"{self._dropped} rows were dropped while the disk could not take them; the oldest went first. "
                    "The charts show the gap."
                )
            if self._rejected:
                notes.append(f"{self._rejected} rows could not be stored: {self._rejection}. Please report this.")
            return (SourceState.PARTIAL, " ".join(notes)) if notes else (SourceState.OK, None)

    def statistics(self) -> WriterStatistics:
        """Counts since the writer was opened."""
        with self._lock:
            return WriterStatistics(
                rows_written=self._written,
                rows_queued=len(self._queue) + self._in_flight,
                rows_dropped=self._dropped,
                rows_rejected=self._rejected,
                commits=self._commits,
                last_commit=self._last_commit,
                last_commit_seconds=self._last_commit_seconds,
                newest_ts=self._newest,
                wal_bytes=wal_bytes(self.path),
            )

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of the reader's own; close it after use. Raises `StoreError` when the file is closed."""
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed; start the collector again")
            try:
                return self._root.cursor()
            except duckdb.Error as error:
                raise StoreError(self._problem or f"{self.path} cannot be read: {error}") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """
        A transaction of the caller's thread beside those of the writer; no checkpoint is made meanwhile.

        It must not change rows that others change. Raises `StoreError`.
        """
        with self.checkpoints.put_off():
            cursor = self.cursor()
            try:
                cursor.begin()
                try:
                    yield cursor
                    cursor.commit()
                except BaseException:
                    with contextlib.suppress(duckdb.Error):  # a failed commit has already ended the transaction
                        cursor.rollback()
                    raise
            finally:
                cursor.close()
            self.checkpoints.committed()

    # ---- the thread --------------------------------------------------------------------------

    def _open(self) -> Event | None:
        heartbeat = read_heartbeat(self.path) if file_bytes(self.path) > 0 else None
        kept = keep_wal(self.path)
        try:
            self._root = open_for_writing(self.path, self._settings)
        except StoreError:
            if kept is not None:
                kept.unlink(missing_ok=True)
            raise
        self._con = self._root.cursor()
        self.rolled_until = rollup.state(self._root).minute_until
        gap = find_gap(self.path, self._root, self._host, heartbeat, kept)
        self._newest = heartbeat.newest if heartbeat else None
        return gap

    def _run(self) -> None:
        due = time.monotonic() + COMMIT_INTERVAL_SECONDS
        while True:
            with self._wake:
                while not (self._stopping or self._hurry) and (left := due - time.monotonic()) > 0:
                    self._wake.wait(left)
                stopping, self._hurry = self._stopping, False
                self._arrivals.append((time.monotonic(), self._accepted))
                retrying = self._problem is not None
                edits = list(self._edits)
            committed = self._commit_queue()
            if committed:
                self._make(edits)
            due = max(due + COMMIT_INTERVAL_SECONDS, time.monotonic())
            if stopping:
                self._finish()
                return
            if (
                committed
                and not retrying
                and not self.checkpoints.when_quiet(self._con, self._last_commit_seconds or 0)
            ):
                self._reopen()
            if not committed:
                with self._wake:  # flush() must not turn a full disk into a busy loop
                    self._wake.wait_for(lambda: self._stopping, COMMIT_INTERVAL_SECONDS)

    def _commit_queue(self) -> bool:
        """Write what is queued in one transaction. False when it has to be tried again."""
        with self._lock:
            batch = list(self._queue)
            self._queue.clear()
            self._in_flight = len(batch)
        if not batch:
            return True
        began = time.monotonic()
        written = Sorted(batch, [])
        try:
            try:
                write(self._con, batch, self.rolled_until)
            except ROW_FAULTS:
                written = sort_out(self._con, batch)
                write(self._con, written.good, self.rolled_until)
        except Exception as error:  # noqa: BLE001 - whatever it is: the rows stay, health() and the log tell it
            self._put_back(batch, error)
            return False
        self._settle(written, time.monotonic() - began)
        return True

    def _make(self, edits: Sequence[tuple[Callable[[duckdb.DuckDBPyConnection], Any], Future[Any]]]) -> None:
        """Make the changes that were asked for before the last commit began, each in its own transaction."""
        for change, future in edits:
            with self._lock:
                self._edits.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                self._con.begin()
                result = change(self._con)
                self._con.commit()
            except Exception as error:  # noqa: BLE001 - whatever it is: whoever asked for the change is told
                with contextlib.suppress(duckdb.Error):
                    self._con.rollback()
                if isinstance(error, StoreError):
                    future.set_exception(error)
                else:
                    _LOG.error("edit_failed", path=str(self.path), error=repr(error))
                    future.set_exception(StoreError(f"nothing was changed, the store could not: {error}"))
                if isinstance(error, (duckdb.FatalException, duckdb.ConnectionException)):
                    self._reopen()
            else:
                self.checkpoints.committed()
                future.set_result(result)

    def _settle(self, written: Sorted, seconds: float) -> None:
        newest = newest_time(written.good)
        if newest is not None and (self._newest is None or newest > self._newest):
            self._newest = newest
        heartbeat_problem = self._beat(closed=False)
        with self._wake:
            if self._problem is not None and heartbeat_problem is None:
                _LOG.info("store_writes_again", rows=len(written.good))
            self._in_flight = 0
            self._written += len(written.good)
            self._rejected += len(written.rejected)
            self._rejection = written.reason or self._rejection
            self._settled += len(written.good) + len(written.rejected)
            self._commits += 1
            self._last_commit = datetime.now(UTC)
            self._last_commit_seconds = seconds
            self._problem = heartbeat_problem
            self.checkpoints.committed()
            self._wake.notify_all()

    def _put_back(self, batch: list[Row], error: Exception) -> None:
        with self._wake:
            first = self._problem is None
            self._queue.extendleft(reversed(batch))
            self._in_flight = 0
            self._trim()
            self._problem = (
                f"Rows cannot be written to {self.path}: {error}. {len(self._queue):,} rows wait in memory and are "
                f"tried again every second. Sampling goes on {kept_for(self._rate(), len(self._queue))}, then the "
                "oldest are dropped and counted. Free some disk space, or check that the folder can be written."
            )
            self._wake.notify_all()
        if first:
            _LOG.error("store_write_failed", path=str(self.path), error=repr(error), rows=len(batch))
        if isinstance(error, (duckdb.FatalException, duckdb.ConnectionException)):
            self._reopen()

    def _reopen(self) -> None:
        """DuckDB refuses everything after a fatal error until the file is opened anew."""
        with self._lock:
            self._con.close()
            self._root.close()
            try:
                self._root = open_for_writing(self.path, self._settings)
                self._con = self._root.cursor()
            except StoreError as error:
                self._problem = f"{error} It is tried again every second; {len(self._queue)} rows wait in memory."
                _LOG.exception("store_reopen_failed", path=str(self.path))

    def _rate(self) -> float | None:
        """Rows a second that were queued lately; None when that is not known yet. The caller holds the lock."""
        (began, before), (ended, after) = self._arrivals[0], self._arrivals[-1]
        return (after - before) / (ended - began) if ended - began >= RATE_AT_LEAST_SECONDS else None

    def _trim(self) -> None:
        """Drop the oldest rows beyond the bound. The caller holds the lock."""
        excess = len(self._queue) + self._in_flight - MAX_QUEUED_ROWS
        for _ in range(min(excess, len(self._queue))):
            self._queue.popleft()
            self._dropped += 1
            self._settled += 1

    def _beat(self, *, closed: bool) -> str | None:
        if self._newest is None:
            return None
        try:
            write_heartbeat(self.path, Heartbeat(self._newest, closed))
        except OSError as error:
            return (
                f"The heartbeat beside {self.path} cannot be written ({error.strerror or error}); a loss of rows in a "
                "crash would go unnoticed. Free some disk space, or check that the folder can be written."
            )
        return None

    def _finish(self) -> None:
        with self._wake:
            lost = len(self._queue)
            problem = self._problem
            self._closed = True
            for _, future in self._edits:
                if future.set_running_or_notify_cancel():
                    future.set_exception(StoreError("nothing was changed: the collector is being stopped"))
            self._edits.clear()
            self._wake.notify_all()
        if lost:
            _LOG.error("rows_lost_at_stop", path=str(self.path), rows=lost, problem=problem)
        try:
            self._con.execute("CHECKPOINT")
        except duckdb.Error as error:
            _LOG.warning("checkpoint_failed_at_stop", path=str(self.path), error=str(error))
        self._con.close()
        self._root.close()
        if (heartbeat_problem := self._beat(closed=True)) is not None:
            _LOG.warning("heartbeat_not_closed", problem=heartbeat_problem)
