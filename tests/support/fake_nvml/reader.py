"""
A child process that reads GPUs through the real pynvml, told what to do line by line on stdin.

`read` prints one reading as JSON, `advance SECONDS` moves the clock that the back-off uses,
`cpu N` prints the CPU seconds of N readings.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from datetime import UTC, datetime

from collectors.devices.nvidia import NvidiaBackend

TS = datetime(2026, 12, 1, tzinfo=UTC)


def main() -> None:
    now = 1000.0
    backend = NvidiaBackend(clock=lambda: now)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "advance":
            now += float(arguments[0])
            answer: object = now
        elif command == "cpu":
            begin = time.process_time()
            for _ in range(int(arguments[0])):
                backend.read(TS, "host-a")
            answer = time.process_time() - begin
        elif command == "close":
            backend.close()
            answer = None
        else:
            answer = dataclasses.asdict(backend.read(TS, "host-a"))
        print(json.dumps(answer, default=lambda x: sorted(x) if isinstance(x, frozenset) else str(x)), flush=True)


if __name__ == "__main__":
    main()
