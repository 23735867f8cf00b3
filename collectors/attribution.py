"""Which engine holds which memory: process trees against what the devices and the host report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

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


class Attributed(NamedTuple):
    """The rows of one moment. `detail` says what could not be attributed, and why."""

    rows: tuple[ProcessMemory, ...]
    detail: str | None


@dataclass(frozen=True, slots=True)
class _Usage:
    """What one process used: resident bytes, and CPU seconds since it began."""

    rss_bytes: int
    cpu_seconds: float


class TreeUsage:
    """
    Host memory and CPU of every engine. Keeps the CPU times of the previous call.

    Memory is the sum of the resident set sizes of the engine's process tree (method ``rss``). Pages
    that several processes of the tree share (forked memory, shared memory segments) are in it once for
    each of them, and pages of a mapped model file are in it although the kernel can drop them, so it
    is an upper bound. The proportional set size would count them once, but to tell it the kernel walks
    every page of the engine while it holds a lock that the engine needs (measured: 14 ms for each GiB of
    4 KiB pages, against 0.07 ms for the resident size), which a monitor must not make it do every second.
    """

    def __init__(self) -> None:
        self._previous: dict[tuple[int, float], float] = {}
        self._previous_monotonic: float | None = None

    def rows(
        self,
        ts: datetime,
        monotonic_seconds: float,
        host: str,
        engines: Sequence[EngineRoot],
        snapshot: ProcessSnapshot,
    ) -> tuple[ProcessMemory, ...]:
        """
        One row (`device_id` None) for every engine whose root process can be seen.

        `cpu_cores` is CPU seconds (user and system) per second of `monotonic_seconds` since the
        previous call, over the processes of the tree: None on the first call, never negative. What a
        process used after the previous call is missing when it ended before this one.
        `memory_bytes` is None where the platform keeps the size of a process of the tree secret.
        """
        elapsed = None if self._previous_monotonic is None else monotonic_seconds - self._previous_monotonic
        previous, self._previous, self._previous_monotonic = self._previous, {}, monotonic_seconds
        owners = _owners(engines, snapshot)
        rows = []
        for engine in engines:
            root = snapshot.get(engine.root_pid)
            if root is None or owners.get(root.pid) is not engine:
                continue
            tree = [process for process in snapshot.tree(root.pid) if owners[process.pid] is engine]
            usages = [(process, _usage(process)) for process in tree]
            known = [(process, usage) for process, usage in usages if isinstance(usage, _Usage)]
            secret = any(usage is None for _, usage in usages)
            cpu_seconds: float | None = None if elapsed is None or elapsed <= 0 or secret else 0.0
            if not any((process.pid, process.start) in previous for process, _ in known):
                cpu_seconds = None  # this engine was not there at the previous call
            for process, usage in known:
                life = (process.pid, process.start)
                self._previous[life] = usage.cpu_seconds
                if cpu_seconds is not None and elapsed is not None:
                    # start times are exact to a second only (btime of /proc/stat)
                    began = 0.0 if ts.timestamp() - process.start <= elapsed + 1 else usage.cpu_seconds
                    cpu_seconds += max(0.0, usage.cpu_seconds - previous.get(life, began))
            rows.append(
                ProcessMemory(
                    ts=ts,
                    host=host,
                    engine_id=engine.engine_id,
                    epoch_id=engine.epoch_id,
                    device_id=None,
                    pid=root.pid,
                    process_name=root.title,
                    method="rss",
                    memory_bytes=None if secret or not known else sum(usage.rss_bytes for _, usage in known),
                    cpu_cores=cpu_seconds / elapsed if cpu_seconds is not None and elapsed else None,
                    process_count=len(known) + sum(usage is None for _, usage in usages),
                )
            )
        return tuple(rows)


def device_rows(
    ts: datetime, host: str, engines: Sequence[EngineRoot], reading: DeviceReading, snapshot: ProcessSnapshot
) -> Attributed:
    """
    One row for every (device, process) of `reading`, with the driver's own figure and its method.

    All processes below an engine's root are that engine: vLLM's EngineCore and workers, the children
    of a llama.cpp router and of Ollama. A process of no engine has `engine_id` None; one that can't
    be seen here (of another pid namespace) has no name either, and `detail` says so.
    """
    owners = _owners(engines, snapshot)
    rows, unseen = [], set()
    for held in reading.processes:
        process = snapshot.get(held.pid)
        engine = owners.get(held.pid)
        if process is None:
            unseen.add(held.pid)
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
    return Attributed(tuple(rows), _unseen_detail(unseen))


def _owners(engines: Sequence[EngineRoot], snapshot: ProcessSnapshot) -> dict[int, EngineRoot]:
    """The engine of every process in a tree. Where one tree lies in another, the inner one keeps its own."""
    trees = [(engine, snapshot.tree(engine.root_pid)) for engine in engines if engine.root_pid is not None]
    trees.sort(key=lambda item: len(item[1]), reverse=True)
    return {process.pid: engine for engine, tree in trees for process in tree}


def _usage(process: Process) -> _Usage | Literal["ended"] | None:
    """What the process uses now; None where that is secret."""
    try:
        handle = psutil.Process(process.pid)
        with handle.oneshot():
            times = handle.cpu_times()
            return _Usage(handle.memory_info().rss, times.user + times.system)
    except psutil.AccessDenied:
        return None
    except (psutil.NoSuchProcess, ProcessLookupError):
        return "ended"


def _unseen_detail(pids: Iterable[int]) -> str | None:
    unseen = sorted(set(pids))
    if not unseen:
        return None
    listed = ", ".join(map(str, unseen[:8])) + (" ..." if len(unseen) > 8 else "")
    return (
        f"the driver reports {len(unseen)} process(es) that can't be seen here (pid {listed}), as with engines in "
        "containers: their memory belongs to no engine. Run the collector on the host, or with --pid=host."
    )
