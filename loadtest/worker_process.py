"""The worker of one load test as a child process: started, read line by line, stopped, and asked why it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from collectors.redaction import redact_text
from loadtest.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "loadtest.worker")
STOP_GRACE_SECONDS = 20.0  # a worker that was asked to stop and still runs then is killed
_LINES_OF_ERRORS = 40
_MOST_CHARACTERS = 500


class Worker:
    """
    A running worker. It has a process group of its own; closing its standard output ends it.

    Raises `OSError` when the process can't be started.
    """

    def __init__(self, spec: Spec, hidden_variables: Sequence[str], command: Sequence[str] = COMMAND) -> None:
        self._keys = [key for e in spec.endpoints if e.api_key_env and (key := os.environ.get(e.api_key_env))]
        named = {endpoint.api_key_env for endpoint in spec.endpoints}
        self._process = subprocess.Popen(  # noqa: S603 - no shell; the command is our own
            command,
            cwd=ROOT,
            env=_environment(os.environ, [name for name in hidden_variables if name not in named]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._errors: deque[str] = deque(maxlen=_LINES_OF_ERRORS)
        self._drain = threading.Thread(target=self._read_errors, name="loadtest worker errors", daemon=True)
        self._drain.start()
        stdin = cast("IO[bytes]", self._process.stdin)
        with contextlib.suppress(BrokenPipeError), stdin:  # one that has ended already says why on its standard error
            stdin.write(spec.to_json().encode())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def lines(self) -> Iterator[bytes]:
        """What it says, until it ends."""
        with cast("IO[bytes]", self._process.stdout) as lines:
            yield from lines

    def stop(self) -> None:
        """Ask it to end its stage and itself; returns at once. It is killed when it does not."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        timer = threading.Timer(STOP_GRACE_SECONDS, self.kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        """End it and its children at once, if it still runs."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> str | None:
        """Wait for its end. None when it ended well, else how, with the last line that it left."""
        code = self._process.wait()
        self._drain.join(2)
        if code == 0:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = next((line for line in reversed(self._errors) if line), "")
        return f"the load generator {how}" + (f": {self._without_keys(last)}" if last else "")

    def _read_errors(self) -> None:
        with cast("IO[bytes]", self._process.stderr) as errors:
            for line in errors:
                self._errors.append(line.decode("utf-8", "replace").strip()[:_MOST_CHARACTERS])

    def _without_keys(self, text: str) -> str:
        for key in self._keys:
            text = text.replace(key, "[redacted]")
        return redact_text(text)


def _environment(environment: Mapping[str, str], hidden: Sequence[str]) -> dict[str, str]:
    """The collector's own, without the keys of endpoints that this run does not load."""
    kept = {name: value for name, value in environment.items() if name not in hidden}
    return {**kept, "PYTHONUNBUFFERED": "1"}
