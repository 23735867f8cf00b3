"""Which engine holds which memory: process trees against what the devices and the host report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import psutil

from collectors.devices.base import DeviceReading
from collectors.processes import Process, ProcessSnapshot
from store.model import ProcessMemory


@dataclass(frozen=True, slots=True)
class EngineRoot:
    """A running engine and the process at the top of its tree; `root_pid` is None where it can't be seen."""

    engine_id: str
    epoch_id: str
    root_pid: int | None


@dataclass(frozen=True, slots=True)
class Attributed:
    """The rows of one moment. `detail` says what could not be attributed, and why."""

    rows: tuple[ProcessMemory, ...]
    detail: str | None


@dataclass(frozen=True, slots=True)
class _Usage:
    """What one process used: resident bytes, and CPU seconds since it began."""

    rss_bytes: int
    cpu_seconds: float


class Attribution:
    """
    Turns readings into `ProcessMemory` rows. Keeps the CPU times of the previous call.

    Device memory: the driver's own figure for each process (method ``nvml_process``). All processes
    below an engine's root are that engine: vLLM's EngineCore and workers, the children of a
    llama.cpp router and of Ollama.

    Host memory: the sum of the resident set sizes of the tree (method ``rss``). Pages that several
    processes of the tree share (forked memory, shared memory segments) are in it once for each of
    them, and pages of a mapped model file are in it although the kernel can drop them, so it is an
    upper bound. The proportional set size would count them once, but reading it makes the kernel
    walk every page of the engine while holding a lock that the engine needs (about 10 ms for each GB
    of small pages), which a monitor must not do every second.
    """

    def __init__(self) -> None:
        self._previous: dict[tuple[int, float], float] = {}
        self._previous_monotonic: float | None = None

    def attribute(
        self,
        ts: datetime,
        monotonic_seconds: float,
        host: str,
        engines: Sequence[EngineRoot],
        reading: DeviceReading | None,
        snapshot: ProcessSnapshot,
    ) -> Attributed:
        """
        Rows for every (device, process), and one host row for every engine whose root can be seen.

        `cpu_cores` is CPU seconds (user and system) per second of `monotonic_seconds` since the
        previous call, over the processes of the tree: None on the first call, never negative. What a
        process used after the previous call is lost when it ended before this one.
        """
        owner: dict[int, EngineRoot] = {}
        trees: list[tuple[EngineRoot, tuple[Process, ...]]] = []
        for engine in engines:
            tree = snapshot.tree(engine.root_pid) if engine.root_pid is not None else ()
            trees.append((engine, tree))
        # the larger tree first: where one engine's tree lies in another's, the inner one keeps its own processes
        for engine, tree in sorted(trees, key=lambda item: -len(item[1])):
            owner.update({process.pid: engine for process in tree})
        rows, unseen = _device_rows(ts, host, reading, snapshot, owner)
        current: dict[tuple[int, float], float] = {}
        elapsed = None if self._previous_monotonic is None else monotonic_seconds - self._previous_monotonic
        for engine, tree in trees:
            own = [process for process in tree if owner[process.pid] is engine]
            if own:
                rows.append(self._host_row(ts, host, engine, own, elapsed, current))
        self._previous, self._previous_monotonic = current, monotonic_seconds
        return Attributed(tuple(rows), _unseen_detail(unseen))

    def _host_row(
        self,
        ts: datetime,
        host: str,
        engine: EngineRoot,
        tree: Sequence[Process],
        elapsed: float | None,
        current: dict[tuple[int, float], float],
    ) -> ProcessMemory:
        rss_bytes, cpu_seconds, count, hidden = 0, 0.0, 0, False
        for process in tree:
            try:
                usage = _usage(process)
            except psutil.AccessDenied:
                hidden = True
                continue
            if usage is None:
                continue
            count += 1
            rss_bytes += usage.rss_bytes
            life = (process.pid, process.start)
            current[life] = usage.cpu_seconds
            before = self._previous.get(life)
            # a process that was not there before has used all of its CPU time since
            cpu_seconds += max(0.0, usage.cpu_seconds - (before if before is not None else 0.0))
        known_before = any((process.pid, process.start) in self._previous for process in tree)
        return ProcessMemory(
            ts=ts,
            host=host,
            engine_id=engine.engine_id,
            epoch_id=engine.epoch_id,
            device_id=None,
            pid=engine.root_pid,
            process_name=tree[0].title,
            method="rss",
            memory_bytes=None if hidden or not count else rss_bytes,
            cpu_cores=cpu_seconds / elapsed if elapsed and elapsed > 0 and known_before and not hidden else None,
            process_count=len(tree),
        )


def _usage(process: Process) -> _Usage | None:
    """What the process uses now, or None when it has ended. Raises AccessDenied where that is secret."""
    try:
        handle = psutil.Process(process.pid)
        with handle.oneshot():
            times = handle.cpu_times()
            return _Usage(handle.memory_info().rss, times.user + times.system)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def _device_rows(
    ts: datetime,
    host: str,
    reading: DeviceReading | None,
    snapshot: ProcessSnapshot,
    owner: dict[int, EngineRoot],
) -> tuple[list[ProcessMemory], list[int]]:
    rows: list[ProcessMemory] = []
    unseen: list[int] = []
    for held in reading.processes if reading else ():
        process = snapshot.get(held.pid)
        engine = owner.get(held.pid)
        if process is None:
            unseen.append(held.pid)
        rows.append(
            ProcessMemory(
                ts=ts,
                host=host,
                engine_id=engine.engine_id if engine else None,
                epoch_id=engine.epoch_id if engine else None,
                device_id=held.device_id,
                pid=held.pid,
                process_name=process.title if process else None,
                method=held.method,
                memory_bytes=held.memory_bytes,
            )
        )
    return rows, unseen


def _unseen_detail(pids: Iterable[int]) -> str | None:
    unseen = sorted(set(pids))
    if not unseen:
        return None
    listed = ", ".join(map(str, unseen[:8])) + (" ..." if len(unseen) > 8 else "")
    return (
        f"the driver reports {len(unseen)} process(es) that can't be seen here (pid {listed}), as with engines in "
        "containers: their memory belongs to no engine. Run the collector on the host, or with --pid=host."
    )
