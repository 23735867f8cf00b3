"""
Device memory of an engine where the driver tells no process's share: the growth of the device since the engine began.

That is an estimate (method ``device_delta``) and holds only while nothing else is known to have changed: this
collector watched the device before the engine's process began, and no other engine began or ended since. Else
there is no figure (method ``none``), with the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from collectors.attribution import EngineRoot
from collectors.processes import ProcessSnapshot
from store.model import DeviceSample, ProcessMemory

CHANGES_KEPT = 20_000  # changes of a device's used memory that are remembered; 5 h if it changes every second
START_EXACT_SECONDS = 1.0  # a process's start is exact to a second (btime of /proc/stat)


@dataclass(frozen=True, slots=True)
class _Growth:
    """What a device grew by in bytes, or why that says nothing of the engine."""

    memory_bytes: int | None
    reason: str | None = None


class DeviceDelta:
    """Remembers what devices had in use, and which engines came and went. Used by one thread."""

    def __init__(self) -> None:
        self._used: dict[str, deque[tuple[float, int]]] = {}  # changes of used bytes, by device: (Unix time, bytes)
        self._alive: dict[tuple[str, str], float] = {}
        self._last_end: float | None = None

    def watch(self, ts: datetime, samples: Iterable[DeviceSample]) -> None:
        """Remember what each device has in use now."""
        for sample in samples:
            changes = self._used.setdefault(sample.device_id, deque(maxlen=CHANGES_KEPT))
            used = sample.memory_used_bytes
            if used is not None and (not changes or changes[-1][1] != used):
                changes.append((ts.timestamp(), used))

    def rows(
        self,
        ts: datetime,
        host: str,
        engines: Sequence[EngineRoot],
        snapshot: ProcessSnapshot,
        device_ids: Sequence[str],
    ) -> tuple[list[ProcessMemory], str | None]:
        """
        One row for each engine and device of `device_ids`, and what to tell the person.

        A device that did not grow holds nothing of the engine and gets no row. Call it at every reading, so that
        engines that end are noticed.
        """
        starts = {
            (engine.engine_id, engine.epoch_id): root.start
            for engine in engines
            if (root := snapshot.get(engine.root_pid)) is not None
        }
        if self._alive.keys() - starts.keys():
            self._last_end = ts.timestamp()
        self._alive = starts
        rows, reasons = [], []
        for engine in engines:
            root = snapshot.get(engine.root_pid)
            for device_id in device_ids:
                growth = self._growth(engine, starts, device_id)
                if growth.reason is not None:
                    reasons.append(f"{engine.engine_id}: {growth.reason}")
                elif growth.memory_bytes == 0:
                    continue
                rows.append(
                    ProcessMemory(
                        ts=ts,
                        host=host,
                        engine_id=engine.engine_id,
                        epoch_id=engine.epoch_id,
                        device_id=device_id,
                        pid=engine.root_pid,
                        process_name=root.title if root else None,
                        method="none" if growth.memory_bytes is None else "device_delta",
                        memory_bytes=growth.memory_bytes,
                    )
                )
        return rows, _detail(reasons, estimated=any(row.memory_bytes is not None for row in rows))

    def _growth(self, engine: EngineRoot, starts: Mapping[tuple[str, str], float], device_id: str) -> _Growth:
        life = (engine.engine_id, engine.epoch_id)
        start = starts.get(life)
        changes = self._used.get(device_id)
        if start is None or not changes:
            return _Growth(None, "its process can't be seen here")
        if changes[0][0] > start:
            return _Growth(None, "it began before this collector watched the device")
        since = start - START_EXACT_SECONDS
        others = sorted(other for (other, _), began in starts.items() if other != engine.engine_id and began >= since)
        if others:
            return _Growth(None, f"{others[0]} began after it, and their memory can't be told apart")
        if self._last_end is not None and self._last_end >= since:
            return _Growth(None, "an engine ended after it began, or as it did")
        before = next(used for at, used in reversed(changes) if at <= start)
        grown = changes[-1][1] - before
        return _Growth(grown) if grown >= 0 else _Growth(None, "the device holds less than before it began")


def _detail(reasons: Sequence[str], *, estimated: bool) -> str | None:
    texts = []
    if estimated:
        texts.append("The driver tells no process's memory: an engine's is the growth of the device since it began.")
    if reasons:
        listed = "; ".join(dict.fromkeys(reasons))
        texts.append(f"The driver tells no process's memory, and it can't be estimated for {listed}.")
    return " ".join(texts) or None
