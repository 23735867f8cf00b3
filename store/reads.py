"""Reads with a limit on how many run at once and on how long each may take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from settings import StoreSettings
from store import queries
from store.protocol import READ_TURN_WAIT_SECONDS, Parameter, StoreBusyError, StoreError

INTERRUPT_AGAIN_SECONDS = 0.1
EXPORTS_AT_ONCE = 2
EXPORT_TIMEOUT_SECONDS = 1800.0


class Reader:
    """
    Runs reads over cursors of one connection; any thread may call it.

    Exports have turns of their own, so that a slow download never keeps charts waiting.
    """

    def __init__(
        self,
        path: Path,
        settings: StoreSettings,
        cursor: Callable[[], duckdb.DuckDBPyConnection],
        turn_wait_seconds: float = READ_TURN_WAIT_SECONDS,
    ) -> None:
        self.path = path
        self._settings = settings
        self._cursor = cursor
        self._turn_wait_seconds = turn_wait_seconds
        self._turns = threading.BoundedSemaphore(settings.read_limit)
        self._export_turns = threading.BoundedSemaphore(EXPORTS_AT_ONCE)

    def query(self, name: str, parameters: Mapping[str, Parameter] | None = None) -> pa.Table:
        """Answer a named query. Raises `StoreBusyError` when it gets no turn or takes too long."""
        with self._turn(self._turns, self._settings.read_timeout_seconds, f"query {name!r}") as cursor:
            return queries.run(cursor, self.path, name, parameters, self._settings)

    @contextmanager
    def export_cursor(self, what: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for a streamed export. Raises `StoreBusyError` like `query`."""
        with self._turn(self._export_turns, EXPORT_TIMEOUT_SECONDS, what) as cursor:
            yield cursor

    @contextmanager
    def _turn(
        self, turns: threading.BoundedSemaphore, limit_seconds: float, what: str
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        if not turns.acquire(timeout=self._turn_wait_seconds):
            raise StoreBusyError(
                f"{what} did not get a turn within {self._turn_wait_seconds:g} s because other reads are running; "
                "try again"
            )
        try:
            cursor = self._cursor()
            done = threading.Event()
            watch = threading.Thread(target=_stop_after, args=(cursor, limit_seconds, done), daemon=True)
            watch.start()
            try:
                yield cursor
            except duckdb.InterruptException as error:
                raise StoreBusyError(
                    f"{what} was stopped after {limit_seconds:g} s so that sampling is not held up; ask for a shorter "
                    "range or try again"
                ) from error
            except duckdb.Error as error:
                raise StoreError(f"{what} failed: {error}") from error
            finally:
                done.set()
                watch.join()
                cursor.close()
        finally:
            turns.release()


def _stop_after(cursor: duckdb.DuckDBPyConnection, limit_seconds: float, done: threading.Event) -> None:
    """Interrupt what runs on a cursor. Again and again: between two statements an interrupt hits nothing."""
    if not done.wait(limit_seconds):
        cursor.interrupt()
        while not done.wait(INTERRUPT_AGAIN_SECONDS):
            cursor.interrupt()
