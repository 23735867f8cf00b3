"""
The thread that keeps the store in shape: rolls samples up every minute, deletes what is old enough, and compacts.

It works in small transactions on a cursor of its own, beside the writer: rows are never kept waiting, and a crash
at any point leaves a step done or not done. Nothing is deleted before it is in the rollups by the hour and, where
the archive is switched on, in the archive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import duckdb
import structlog

from settings import StoreSettings
from store import archive, compaction, retention, rollup
from store.clock import Clock, elapsed_seconds
from store.protocol import StoreError
from store.writer import Writer

_LOG = structlog.get_logger(__name__)
T = TypeVar("T")

INTERVAL_SECONDS = 60.0
PAUSE_SECONDS = 0.05  # between two steps, so that a long catching up leaves room for others


class Maintenance:
    """Maintains the file of `writer` from `start` until `stop`."""

    def __init__(self, writer: Writer, settings: StoreSettings) -> None:
        self._writer = writer
        self._settings = settings
        self._stopping = threading.Event()
        self._clock = Clock(_newest_sample(writer))
        self._thread = threading.Thread(target=self._run, name="store-maintenance", daemon=True)

    def start(self) -> None:
        """Begin with a first round at once."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """End after the step that is being made."""
        self._stopping.set()
        self._thread.join(timeout_seconds)

    def once(self, now: datetime, *, delete: bool = True) -> None:
        """
        One round as of `now`: roll up, delete, compact a step of each table. Raises `StoreError` or `duckdb.Error`.

        What was done until then stays done, and the next round goes on from there. `delete` says whether `now` can be
        relied on.
        """
        until = rollup.floor(now - rollup.SETTLE, rollup.MINUTE)
        self._writer.rolled_until = max(self._writer.rolled_until or until, until)
        self._writer.flush()  # from here on, the writer notes what comes for the time before
        while self._step(lambda cursor: rollup.roll_minutes(cursor, until)):
            pass
        self._step(rollup.roll_hours)
        self._step(rollup.roll_late)
        for level in retention.levels(self._settings) if delete else ():
            while not self._stopping.is_set() and self._delete_due(level, now):
                pass
        for table in compaction.KEYS:
            self._step(partial(self._compact_due, table=table, now=now))

    def _run(self) -> None:
        while not self._stopping.is_set():
            now = datetime.now(UTC)
            try:
                self.once(now, delete=self._clock.may_delete(now, elapsed_seconds()))
            except (StoreError, duckdb.Error) as error:
                _LOG.warning("maintenance_failed", error=str(error))
                self._writer.maintenance_problem = (
                    f"Rollups and retention wait: {error}. It is tried again every minute; no sample is lost."
                )
            else:
                self._writer.maintenance_problem = self._clock.problem
            self._stopping.wait(INTERVAL_SECONDS)

    def _step(self, change: Callable[[duckdb.DuckDBPyConnection], T]) -> T | None:
        """One transaction, then a pause; None without doing anything while it is stopping."""
        if self._stopping.is_set():
            return None
        with self._writer.transaction() as cursor:
            done = change(cursor)
        self._stopping.wait(PAUSE_SECONDS)
        return done

    def _delete_due(self, level: retention.Level, now: datetime) -> bool:
        """Delete the oldest step of a level that is due, table by table. False when none is."""
        start = self._step(lambda cursor: retention.due(cursor, level, now))
        if start is None:
            return False
        self._step(lambda cursor: retention.begin(cursor, level, start))
        kept = retention.archived(level, self._settings)
        for table in level.tables:
            self._step(partial(self._delete, table=table, start=start, end=start + level.step, keep=kept))
        return True

    def _delete(
        self, cursor: duckdb.DuckDBPyConnection, table: str, start: datetime, end: datetime, *, keep: bool
    ) -> None:
        if keep:
            archive.keep(cursor, self._writer.path, table, start.date())
        retention.delete(cursor, table, start, end)

    @staticmethod
    def _compact_due(cursor: duckdb.DuckDBPyConnection, table: str, now: datetime) -> None:
        start = compaction.due(cursor, table, now)
        if start is not None:
            compaction.compact(cursor, table, start)


def _newest_sample(writer: Writer) -> datetime | None:
    """The time of the last sample of the host before this start, of which there are events in the store already."""
    cursor = writer.cursor()
    try:
        (newest,) = cursor.execute("SELECT max(ts) FROM host_sample").fetchall()[0]
    finally:
        cursor.close()
    return newest.astimezone(UTC) if isinstance(newest, datetime) else None
