"""
A collector's store and read API filled with the demo of `tests.support.demo`, without any collector.

As a script it goes on writing a second every second, so that the dashboard has something to follow:

    python -m tests.support.demo_server --minutes 20 --scenario usual

It prints how to start the dashboard on it, and ends with Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from settings import Settings
from store import address
from store.model import EngineState
from store.protocol import Command
from store.server import serve
from store.writer import Writer
from tests.support.demo import LLAMA, SECOND, SGLANG, VLLM, Demo
from tests.support.demo_commands import loadtest_commands
from tests.support.demo_mixed import MixedDemo

LOOKED_FOR = [
    {"kind": "vllm", "title": "vLLM", "ports": [8000], "start_hint": "vllm serve Qwen/Qwen3-8B --port 8000"},
    {
        "kind": "llama.cpp",
        "title": "llama.cpp",
        "ports": [8080],
        "start_hint": "llama-server -m Qwen3-8B-Q4_K_M.gguf --port 8080 --metrics --slots",
    },
]
SCENARIOS: dict[str, dict[str, Any]] = {
    "usual": {},
    "two": {"engines": (VLLM, LLAMA)},
    "stopped": {"engines": (VLLM, LLAMA, SGLANG), "states": {SGLANG: EngineState.STOPPED}},
    "unauthorised": {"engines": (VLLM, LLAMA), "states": {LLAMA: EngineState.UNAUTHORISED}},
    "busy": {"engines": (VLLM, LLAMA), "states": {LLAMA: EngineState.BUSY}},
    "loading": {"engines": (SECOND,)},
    "cpu": {"engines": (VLLM, LLAMA), "gpus": 0},
    "empty": {"engines": (), "gpus": 0},
    "mixed": {},
}


@dataclass
class DemoStore:
    """A demo that is being served. `advance` writes further seconds and waits until they can be read."""

    settings: Settings
    demo: Demo | MixedDemo
    writer: Writer
    written: int

    def advance(self, seconds: int) -> None:
        """Write the next `seconds` of the story."""
        for rows in self.demo.seconds(self.written, self.written + seconds):
            self.writer.put(rows)
        self.written += seconds
        self.writer.flush()

    def go_on(self) -> None:
        """Write the story as time passes, until Ctrl-C."""
        with suppress(KeyboardInterrupt):
            while True:
                missing = int((datetime.now(UTC) - self.end).total_seconds())
                if missing:
                    self.advance(missing)
                time.sleep(0.2)

    @property
    def end(self) -> datetime:
        """Time of the newest rows."""
        return self.demo.start + timedelta(seconds=self.written - 1)


@contextmanager
def served(
    data: Path,
    scenario: str = "usual",
    seconds: int = 330,
    end: datetime | None = None,
    commands: Mapping[str, Command] | None = None,
    worker: str = "hold",
) -> Iterator[DemoStore]:
    """
    Serve a scenario from the folder `data` whose story has lasted `seconds` and ends at `end` (now).

    Load tests are carried out by workers that follow `worker`, a script of `tests.support.scripted_worker`;
    `commands` take the place of some commands.
    """
    last = (end or datetime.now(UTC)).replace(microsecond=0)
    settings = Settings(data=data, host="bench-01")
    data.mkdir(parents=True, exist_ok=True)
    story = MixedDemo if scenario == "mixed" else Demo
    demo = story(last - timedelta(seconds=seconds - 1), **SCENARIOS[scenario])
    with ExitStack() as stack:
        writer = Writer(settings.store_path, settings.store)
        stack.callback(writer.close)
        own = stack.enter_context(loadtest_commands(settings, writer, demo.facts(), worker))
        server = serve(writer, settings, lambda: {"looked_for": LOOKED_FOR}, {**own, **(commands or {})})
        stack.callback(server.stop)
        address.write(settings.run_folder, server.address(started=datetime.now(UTC), started_by="person"))
        store = DemoStore(settings, demo, writer, 0)
        writer.put(demo.facts())
        store.advance(seconds)
        yield store


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="data folder (default: a fresh temporary one)")
    parser.add_argument("--minutes", type=int, default=6)
    parser.add_argument("--scenario", choices=SCENARIOS, default="usual")
    options = parser.parse_args()
    data = options.data or Path(tempfile.mkdtemp(prefix="engine-room-demo-"))
    with served(data, options.scenario, options.minutes * 60) as store:
        print(
            f"ENGINE_ROOM_DATA={data} ENGINE_ROOM_COLLECTOR__START_WITH_SERVER=false streamlit run app.py",
            f"serving from process {os.getpid()}; Ctrl-C ends it",
            sep="\n",
            flush=True,
        )
        store.go_on()


if __name__ == "__main__":
    main()
