"""
A worker of a load test that follows a script instead of sending requests.

`python -m tests.support.scripted_worker NAME`; NAME is one of those in `main`. It speaks as the real one does
(`loadtest.records`), so that a manager can be tested on workers that crash, hang or talk nonsense.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from loadtest.records import Progress, Record, RunBegan, RunEnded, StageBegan, to_line
from loadtest.spec import Spec
from tests.support.loadtest_rows import judgement, request, stage

stop = threading.Event()


def say(record: Record) -> None:
    print(to_line(record), flush=True)


def now() -> datetime:
    return datetime.now(UTC)


def begin(spec: Spec) -> None:
    say(RunBegan(now(), 7, len(spec.endpoints), {**spec.model_dump(mode="json"), "seed": 7}))


def play_stage(spec: Spec, number: int, began: datetime, requests: int = 3) -> None:
    """A stage of `requests` requests of two seconds each, one after the other."""
    say(StageBegan(began, number, number, spec.endpoints[number].name, 1.0, 0, requests))
    say(Progress(began, number, "measuring", 1, requests, 0, 1, 25.0, 12.5))
    for index in range(requests):
        sent = 2.0 * index
        known = {"ts": began + timedelta(seconds=sent), "sent_seconds": sent, "done_seconds": sent + 2.0}
        say(request(index, number, output_tokens=10, **known))
    made = {"requests": requests, "succeeded": requests, "failed": 0, "output_tokens": 10.0 * requests}
    ended = began + timedelta(seconds=2.0 * requests)
    unknown = {"engine": None, "engine_id": None, "epoch_id": None}
    say(replace(stage(number, label=spec.endpoints[number].name), ts=began, ended=ended, **unknown, **made))
    say(judgement("errors", "ok", number))


def main() -> None:
    """Play the script that is named on the command line."""
    spec, script = Spec.from_json(sys.stdin.buffer.read()), sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if script == "crash":
        begin(spec)
        sys.exit("out of memory with key sk-abcdefgh12345678")
    if script == "mute":
        return
    if script == "stubborn":
        begin(spec)
        while True:
            time.sleep(1)
    began = now() - timedelta(seconds=60)
    begin(spec)
    for number in range(len(spec.endpoints)):
        play_stage(spec, number, began + timedelta(seconds=10 * number), int(os.environ.get("SCRIPTED_REQUESTS", "3")))
    if script == "nonsense":
        print("a line that is no record", flush=True)
    if script == "hold":
        while not stop.wait(0.2):
            say(Progress(now(), 0, "measuring", 2, 3, 0, 1, 25.0, None))
    if script == "distrust":
        say(judgement("client_saturated", "failed"))
    say(RunEnded(now(), "stopped" if stop.is_set() else "finished", None, {"cpu_fraction": 0.25}))


if __name__ == "__main__":
    main()
