"""A real collector process on a data folder of its own, for end-to-end tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings import CollectorSettings, Settings
from store.client import StoreClient
from store.protocol import StoreUnavailableError
from tests.support.wait import until

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class RunningCollector:
    """The process, and a client on its read API."""

    process: subprocess.Popen[bytes]
    settings: Settings
    client: StoreClient
    log: Path

    def rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        return self.client.query(query, parameters).to_pylist()

    def engine(self, url: str) -> dict[str, Any] | None:
        """The overview of the engine at `url`, or None."""
        try:
            rows = self.rows("overview", window_seconds=3600)
        except StoreUnavailableError:
            return None
        return next((row for row in rows if row["url"] == url), None)


def environment(data: Path, *ports: int, **more: str) -> dict[str, str]:
    """The environment that makes a collector or web server use `data` and probe `ports` as well."""
    return {
        **os.environ,
        "ENGINE_ROOM_DATA": str(data),
        "ENGINE_ROOM_COLLECTOR__PORTS": str(list(ports)),
        "ENGINE_ROOM_COLLECTOR__DISCOVERY_INTERVAL_SECONDS": "1",
        "ENGINE_ROOM_COLLECTOR__ENGINE_INTERVAL_SECONDS": "0.5",
        "ENGINE_ROOM_COLLECTOR__IDENTITY_INTERVAL_SECONDS": "1",
        **more,
    }


def cli(data: Path, *arguments: str, ports: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`python -m collectors ...` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "collectors", *arguments],
        cwd=ROOT,
        env=environment(data, *ports),
        capture_output=True,
        text=True,
        timeout=120,
    )


def settings_for(data: Path) -> Settings:
    """Settings that reach the collector on `data`."""
    return Settings(data=data, collector=CollectorSettings())


@contextmanager
def running_collector(data: Path, *ports: int, **more: str) -> Iterator[RunningCollector]:
    """A collector that answers; ended with SIGTERM afterwards if it still runs."""
    data.mkdir(parents=True, exist_ok=True)
    log = data / "test-collector.log"
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "collectors", "run"],
            cwd=ROOT,
            env=environment(data, *ports, **more),
            stdout=log_file,
            stderr=log_file,
        )
    client = StoreClient(settings_for(data))

    def answers() -> bool:
        assert process.poll() is None, f"the collector ended while starting:\n{log.read_text()}"
        try:
            return client.health()["pid"] == process.pid
        except StoreUnavailableError:
            return False

    try:
        until(answers, 120, "the collector to answer")
        yield RunningCollector(process, settings_for(data), client, log)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(120)
