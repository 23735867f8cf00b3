"""Folding the write-ahead log into the file: in a quiet second, and never while the file is being copied."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import structlog

from store.database import wal_bytes
from store.protocol import StoreBusyError

_LOG = structlog.get_logger(__name__)

CHECKPOINT_WAL_BYTES = 8_000_000
CHECKPOINT_INTERVAL_SECONDS = 300.0
CHECKPOINT_RETRY_SECONDS = 60.0
QUIET_COMMIT_SECONDS = 0.25  # a commit that took longer says that this is no quiet second
HOLD_WAIT_SECONDS = 10.0


class Checkpoints:
    """When the log of the DuckDB file `path` is folded in, and what came of it. Any thread may call any method."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._running = False
        self._holders = 0
        self._dirty = False
        self._done = time.monotonic()
        self._not_before = 0.0
        self.problem: str | None = None

    def committed(self) -> None:
        """Note that the log grew."""
        self._dirty = True

    def when_quiet(self, connection: duckdb.DuckDBPyConnection, last_commit_seconds: float) -> bool:
        """
        Checkpoint when the log is large or old and commits are quick; not while somebody holds `put_off`.

        False when DuckDB refuses everything from now on, so that the file has to be opened anew.
        """
        if time.monotonic() < self._not_before:
            return True
        large = wal_bytes(self._path) >= CHECKPOINT_WAL_BYTES
        old = self._dirty and time.monotonic() - self._done >= CHECKPOINT_INTERVAL_SECONDS
        if not (large or old) or last_commit_seconds > QUIET_COMMIT_SECONDS:
            return True
        with self._changed:
            if self._holders:
                return True
            self._running = True
        try:
            connection.execute("CHECKPOINT")
        except duckdb.Error as error:
            self._failed(error)
            return not isinstance(error, duckdb.FatalException)
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()
        self._dirty = False
        self._done = time.monotonic()
        self.problem = None
        return True

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Keep checkpoints away for a while. Raises `StoreBusyError` when one is being made that takes long."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, HOLD_WAIT_SECONDS):
                raise StoreBusyError("the write-ahead log is being folded in; try again in a moment")
            self._holders += 1
        try:
            yield
        finally:
            with self._changed:
                self._holders -= 1

    def _failed(self, error: duckdb.Error) -> None:
        """The log keeps the rows; it is tried again after a while."""
        self._not_before = time.monotonic() + CHECKPOINT_RETRY_SECONDS
        self.problem = (
            f"The write-ahead log of {self._path} cannot be folded in and keeps growing ({error}). No row is lost. "
            "Free some disk space."
        )
        _LOG.warning("checkpoint_put_off", path=str(self._path), error=str(error))
