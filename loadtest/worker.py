"""
The process that makes the load (`python -m loadtest.worker`): spec on standard input, records on standard output,
nothing else.

SIGTERM or SIGINT ends the stage under way as partial, judges and says `run_ended`; so does a reader that went away.
"""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import BinaryIO

import settings as configuration
from loadtest.loop import run_loop
from loadtest.records import Record, RunEnded, to_line
from loadtest.spec import Spec, SpecError
from loadtest.sweep import Sweep

_MOST_SPEC_BYTES = 10_000_000


class _Writer:
    """Writes records in a thread of its own, so that a slow reader delays no time stamp."""

    def __init__(self, stream: BinaryIO, reader_gone: Callable[[], None]) -> None:
        self._stream, self._reader_gone = stream, reader_gone
        self._records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="records")
        self._thread.start()

    def say(self, record: Record) -> None:
        self._records.put(record)

    def close(self) -> None:
        """Return when everything is written, or nobody reads any more."""
        self._records.put(None)
        self._thread.join()

    def _run(self) -> None:
        gone = False
        while (record := self._records.get()) is not None:
            if gone:
                continue
            try:
                self._stream.write(to_line(record).encode() + b"\n")
                self._stream.flush()
            except OSError:
                gone = True
                self._reader_gone()


def main() -> int:
    """Run the spec on standard input. Exit status 0 when the last record was said, whatever it says."""
    records = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anybody else prints is no record
    given = sys.stdin.buffer.read(_MOST_SPEC_BYTES)
    try:
        spec = Spec.from_json(given)
    except SpecError as wrong:
        records.write(to_line(RunEnded(datetime.now(UTC), "failed", str(wrong), None)).encode() + b"\n")
        records.close()
        return 0
    run_loop(_run(spec, records))
    return 0


async def _run(spec: Spec, records: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    sweep: Sweep | None = None

    def stop(why: str) -> None:
        if sweep is not None:
            sweep.stop(why)

    def reader_gone() -> None:
        loop.call_soon_threadsafe(stop, "nobody reads the records any more")

    writer = _Writer(records, reader_gone)
    try:
        sweep = Sweep(spec, configuration.load(), writer.say)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, "a person stopped it")
        gc.freeze()  # what is loaded by now stays; the collector need not walk it between two chunks
        await sweep.run()
    finally:
        writer.close()


if __name__ == "__main__":
    sys.exit(main())
