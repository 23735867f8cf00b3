"""
The process table and the listening sockets of this host, cheap enough to take every few seconds.

On Linux the table is read from `/proc/PID/stat` directly: psutil needs five times the CPU for the
same three facts (measured: 51 ms against 10 ms for 500 processes). Elsewhere psutil reads it.
Command lines and sockets come from psutil everywhere; as finding the owners of sockets means a look
at every open file of every process, they are listed anew only when the set of listening sockets
changed (`python -m benchmarks.discovery`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

import psutil

_YOUNG_SECONDS = 10.0
_SOCKETS_SECONDS = 60.0  # sockets are listed anew after this long even when none seems to have changed


@dataclass(frozen=True, slots=True)
class Process:
    """
    One process. `start` (Unix seconds) and `pid` together name one life of a process.

    `start` is measured against the boot time that the table was opened with, so it does not move
    while a collector runs; two collectors may differ by a second when the clock was corrected.
    """

    pid: int
    parent_pid: int
    name: str  # the kernel's short name, cut to 15 characters on Linux
    arguments: tuple[str, ...]  # not redacted: for recognising engines only
    start: float

    @property
    def title(self) -> str:
        """The name in full: a title set with setproctitle, or the program's name where `name` was cut."""
        first = self.arguments[0] if self.arguments else ""
        for whole in (first, PurePath(first).name):
            if self.name and whole.startswith(self.name):
                return whole
        return self.name


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """
    A TCP socket that accepts connections. `pid` is None where its owner may not be seen.

    Where several processes hold the socket (a server and its forked workers) it is any one of them.
    """

    address: str
    port: int
    pid: int | None


@dataclass(frozen=True)
class ProcessSnapshot:
    """
    The processes at one moment, with the listening sockets when they were asked for.

    `sockets_complete` is False where this user may not list the sockets of others (macOS).
    """

    processes: Mapping[int, Process]
    sockets: tuple[ListeningSocket, ...] | None = None
    sockets_complete: bool = True
    monotonic_seconds: float = field(default_factory=time.monotonic)

    @cached_property
    def _children(self) -> Mapping[int, list[int]]:
        children: dict[int, list[int]] = {}
        for process in self.processes.values():
            parent = self.processes.get(process.parent_pid)
            # a parent younger than its child is another process that got the pid of the dead parent
            if parent is not None and parent.start <= process.start and parent.pid != process.pid:
                children.setdefault(parent.pid, []).append(process.pid)
        return children

    def get(self, pid: int | None) -> Process | None:
        """The process, or None when there is none that can be seen."""
        return None if pid is None else self.processes.get(pid)

    def tree(self, root: int) -> tuple[Process, ...]:
        """The process `root` and all its descendants, parents first; empty when it is not there."""
        if root not in self.processes:
            return ()
        pids, at = [root], 0
        while at < len(pids):
            pids += self._children.get(pids[at], ())
            at += 1
        return tuple(self.processes[pid] for pid in pids)

    def line(self, pid: int) -> Iterator[Process]:
        """The process and its ancestors, nearest first."""
        process = self.processes.get(pid)
        while process is not None:
            yield process
            parent = self.processes.get(process.parent_pid)
            process = parent if parent and parent.start <= process.start and parent.pid != process.pid else None

    def root_of(self, pid: int, is_engine: Callable[[Process], bool]) -> Process | None:
        """The topmost process among `pid` and its ancestors for which `is_engine` holds, or None."""
        root = None
        for process in self.line(pid):
            if is_engine(process):
                root = process
        return root


@dataclass(frozen=True, slots=True)
class _Listed:
    """A listing of sockets, and what must be unchanged for it to hold."""

    signature: frozenset[tuple[str, str]] | None
    sockets: tuple[ListeningSocket, ...]
    complete: bool
    owners: tuple[Process, ...]
    monotonic_seconds: float


class ProcessTable:
    """
    Takes snapshots, and remembers command lines between them. May be shared by threads.

    A command line is read once for each (pid, start, name), and again while the process is young: a
    new process is first a copy of its parent, then executes a program, then may set a title.
    """

    def __init__(self) -> None:
        self._arguments: dict[tuple[int, float, str], tuple[str, ...]] = {}
        self._boot = psutil.boot_time()
        self._newest: ProcessSnapshot | None = None
        self._listed: _Listed | None = None
        self._lock = threading.Lock()

    def snapshot(self, *, sockets: bool = False, max_age_seconds: float = 0.0) -> ProcessSnapshot:
        """
        All processes that can be seen now; with their listening sockets when `sockets`.

        A snapshot not older than `max_age_seconds` is given again (if it has what is asked for).
        A process that ends meanwhile, a zombie, and one that may not be looked at are left out.
        """
        with self._lock:
            newest = self._newest
            fresh = newest is not None and time.monotonic() - newest.monotonic_seconds < max_age_seconds
            if newest is not None and fresh and (newest.sockets is not None or not sockets):
                return newest
            processes = self._read()
            self._newest = (
                ProcessSnapshot(processes, *self._sockets(processes)) if sockets else ProcessSnapshot(processes)
            )
            return self._newest

    def _sockets(self, processes: Mapping[int, Process]) -> tuple[tuple[ListeningSocket, ...], bool]:
        signature, listed = _listening_signature(), self._listed
        if (
            listed is None
            or signature is None
            or signature != listed.signature
            or time.monotonic() - listed.monotonic_seconds > _SOCKETS_SECONDS
            or any(processes.get(owner.pid) != owner for owner in listed.owners)
        ):
            sockets, complete = _listening(processes)
            owners = tuple(p for p in map(processes.get, {s.pid for s in sockets if s.pid is not None}) if p)
            self._listed = listed = _Listed(signature, sockets, complete, owners, time.monotonic())
        return listed.sockets, listed.complete

    def _read(self) -> dict[int, Process]:
        known, self._arguments = self._arguments, {}
        processes: dict[int, Process] = {}
        now = time.time()
        for pid, parent, name, start in _linux_table(self._boot) if psutil.LINUX else _portable_table():
            key = (pid, start, name)
            arguments = known.get(key)
            if arguments is None or now - start < _YOUNG_SECONDS:
                arguments = _arguments(pid)
            self._arguments[key] = arguments
            processes[pid] = Process(pid, parent, name, arguments, start)
        return processes


def _arguments(pid: int) -> tuple[str, ...]:
    """The command line; empty where it may not be read. A title that overwrote it is one element."""
    try:
        arguments = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return ()
    while arguments and not arguments[-1].strip(" \0"):
        arguments.pop()  # setproctitle fills what is left of the old command line with blanks or NULs
    return tuple(argument.rstrip("\0") for argument in arguments)


def _linux_table(boot: float) -> Iterator[tuple[int, int, str, float]]:
    """`(pid, parent pid, name, start)` of every process but zombies, from /proc/PID/stat (proc(5))."""
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in os.listdir("/proc"):  # noqa: PTH208  (names are wanted; Path objects cost more than the read)
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb", buffering=0) as file:  # noqa: PTH123  (as above)
                data = file.read()
        except OSError:
            continue  # it has just ended, or may not be looked at (hidepid)
        opening, closing = data.find(b"("), data.rfind(b")")  # the name may hold blanks and brackets
        fields = data[closing + 2 :].split(b" ", 20)
        if fields[0] in (b"Z", b"X"):
            continue
        name = data[opening + 1 : closing].decode(errors="replace")
        yield int(entry), int(fields[1]), name, boot + int(fields[19]) / ticks


def _portable_table() -> Iterator[tuple[int, int, str, float]]:
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process.pid, process.ppid(), process.name(), process.create_time()
        except (psutil.Error, OSError):
            continue  # it has just ended, or may not be looked at


def _listening_signature() -> frozenset[tuple[str, str]] | None:
    """Address and inode of every listening TCP socket as Linux writes them (proc(5), state 0A); None elsewhere."""
    found = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(name).read_text("ascii").splitlines()[1:]
        except OSError:  # not Linux, or a kernel without IPv6
            if name == "/proc/net/tcp":
                return None
            continue
        for line in lines:
            columns = line.split(None, 10)
            if columns[3] == "0A":
                found.add((columns[1], columns[9]))
    return frozenset(found)


def _listening(processes: Mapping[int, Process]) -> tuple[tuple[ListeningSocket, ...], bool]:
    """Listening TCP sockets, and whether those of all users are among them."""
    try:
        everybody = psutil.net_connections(kind="tcp")
        return tuple(
            ListeningSocket(connection.laddr.ip, connection.laddr.port, connection.pid)
            for connection in everybody
            if connection.status == psutil.CONN_LISTEN and connection.laddr
        ), True
    except (psutil.Error, OSError):
        pass  # macOS lets only root list the sockets of everybody: ask process by process instead
    found = []
    for pid in processes:
        try:
            own = psutil.Process(pid).net_connections(kind="tcp")
        except (psutil.Error, OSError):
            continue
        found += [
            ListeningSocket(connection.laddr.ip, connection.laddr.port, pid)
            for connection in own
            if connection.status == psutil.CONN_LISTEN and connection.laddr
        ]
    return tuple(found), False
