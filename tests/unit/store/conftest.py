import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from settings import Settings
from store.writer import Writer
from tests.support.rows import HOST

ROOT = Path(__file__).resolve().parents[3]
Starter = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def python() -> Iterator[Starter]:
    """Start Python code in a process of its own; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object, data: Path | None = None) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({"ENGINE_ROOM_DATA": str(data)} if data else {})
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a data folder of the test's own."""
    return Settings(data=tmp_path / "data", host=HOST)


@pytest.fixture
def writer(settings: Settings) -> Iterator[Writer]:
    """A real store, empty."""
    opened = Writer(settings.store_path, settings.store)
    yield opened
    opened.close()
