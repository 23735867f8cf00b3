"""
One collector for each data folder: the lock, starting one beside the web server, finding and stopping it.

The lock is held by the operating system (`flock`; a byte-range lock where there is none), so a
killed collector never leaves a stale one: the file may stay, the lock does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import structlog

from settings import Settings
from store import address
from store.protocol import StoreError

log = structlog.get_logger(__name__)

START_TIMEOUT_SECONDS = 20.0
STOP_TIMEOUT_SECONDS = 20.0
ROOT = Path(__file__).resolve().parent.parent


class AlreadyRunningError(Exception):
    """Another collector owns this data folder."""


@dataclass
class CollectorLock:
    """The right to own a data folder. Held until `release` or the end of the process."""

    path: Path
    _file: IO[str] | None = None

    def acquire(self) -> None:
        """
        Take the lock. Raises `AlreadyRunningError`, naming who holds it, or `StoreError` when the folder
        can't be made or written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = self.path.open("a+", encoding="utf-8")
        except OSError as failed:
            raise StoreError(
                f"The data folder {self.path.parent.parent} can't be used: {failed.strerror} ({failed.filename}). "
                "Make it writable for this user, or name another one with ENGINE_ROOM_DATA."
            ) from failed
        # Somebody who only asks for the holder has the lock for an instant: try again before giving up.
        tries = 4
        while not (held := _lock(handle)) and (tries := tries - 1):
            time.sleep(0.1)
        if not held:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            handle.close()
            raise AlreadyRunningError(
                f"A collector (process {holder}) already owns {self.path.parent.parent}. Use "
                "`python -m collectors status` to see it, `stop` to end it, or ENGINE_ROOM_DATA for another folder."
            )
        handle.seek(0)
        handle.truncate()
        handle.write(str(os.getpid()))
        handle.flush()
        self._file = handle

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """The pid of the process that holds the lock, or None when it is free."""
        if not self.path.exists():
            return None
        with self.path.open("a+", encoding="utf-8") as handle:
            if _lock(handle):
                return None
            handle.seek(0)
            text = handle.read().strip()
        return int(text) if text.isdigit() else -1


def _lock(handle: IO[str]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock_of(settings: Settings) -> CollectorLock:
    """The lock of the configured data folder."""
    return CollectorLock(settings.run_folder / "lock")


def record_failure(settings: Settings, message: str | None) -> None:
    """Leave the reason why a collector could not start where the dashboard finds it; None clears it."""
    with contextlib.suppress(OSError):  # a folder that can't be written is the likely reason itself; it is on stderr
        address.write_failure(settings.run_folder, message)


def stop(settings: Settings, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> bool:
    """
    Ask the running collector to end and wait until it has flushed and let go of the folder.

    Returns False when none runs. Raises `TimeoutError` when it does not end in time.
    """
    lock = lock_of(settings)
    pid = lock.holder()
    if pid is None:
        return False
    if pid > 0:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_seconds
    while lock.holder() is not None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"The collector (process {pid}) did not end within {timeout_seconds:g} s.")
        time.sleep(0.05)
    return True


class Supervisor:
    """
    Makes sure, on behalf of a web server, that a collector runs.

    It starts one when the folder's lock is free, detached from the server's terminal, and starts
    another when that one dies. On `release` (a clean stop of the server) it ends a collector that
    a web server started, and leaves alone one that was started with `python -m collectors run`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="collector supervisor", daemon=True)

    def start(self) -> None:
        """Begin to watch; returns at once."""
        self._thread.start()

    def release(self) -> None:
        """Stop watching and end the collector if a web server started it."""
        self._stop.set()
        if self._thread.ident is None:  # never started: this server was told to leave the collector alone
            return
        self._thread.join(timeout=5)
        found = address.read(self._settings.run_folder)
        if found is None or found.started_by != "server":
            return
        try:
            stop(self._settings)
        except TimeoutError as slow:
            log.warning("collector still running", reason=str(slow))

    def _watch(self) -> None:
        pause = 1.0
        while not self._stop.is_set():
            if self._child is not None and self._child.poll() is not None:
                log.warning("collector ended", exit_code=self._child.returncode, restart_in_seconds=pause)
                self._child = None
                if self._stop.wait(pause):
                    return
                pause = min(60.0, pause * 2)
            if lock_of(self._settings).holder() is None:
                self._child = spawn(self._settings)
                self._stop.wait(START_TIMEOUT_SECONDS / 10)
            elif self._child is not None:
                pause = max(1.0, pause / 1.5)  # it has held the lock for a while: forget earlier failures slowly
            self._stop.wait(2.0)


def spawn(settings: Settings) -> subprocess.Popen[bytes]:
    """Start `python -m collectors run` in a session of its own, logging to `run/collector.log`."""
    settings.run_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log_path = settings.run_folder / "collector.log"
    if log_path.exists() and log_path.stat().st_size > 5_000_000:
        log_path.replace(log_path.with_suffix(".log.1"))
    with log_path.open("ab") as log_file:
        return subprocess.Popen(
            [sys.executable, "-m", "collectors", "run", "--started-by", "server"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            env={**os.environ, "ENGINE_ROOM_DATA": str(settings.data)},
        )


def ensure_collector(settings: Settings) -> Supervisor:
    """Start watching over a collector for this web server; returns at once. See `Supervisor`."""
    supervisor = Supervisor(settings)
    if settings.collector.start_with_server:
        supervisor.start()
    return supervisor
