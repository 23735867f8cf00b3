"""The dashboard as a process and a Chromium to look at it: what every browser test begins with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.wait import free_port, until

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the browser tests need one"),
]
COMES_UP_SECONDS = 120


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@contextmanager
def dashboard(data: Path, health: str = "/_stcore/health", **environment: str) -> Iterator[str]:
    """The dashboard on a data folder; its address, as soon as `health` answers 200. It starts no collector."""
    port = free_port()
    settings = {"ENGINE_ROOM_DATA": str(data), "ENGINE_ROOM_COLLECTOR__START_WITH_SERVER": "false"}
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
        cwd=ROOT,
        env=os.environ | settings | environment,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{address}{health}"), COMES_UP_SECONDS, "the dashboard to come up")
        yield address
    finally:
        server.terminate()
        server.wait(20)


@contextmanager
def demo_dashboard(data: Path, *, module: str = "demo_server", arguments: tuple[str, ...] = ()) -> Iterator[str]:
    """The dashboard over a demo of `tests.support` that goes on; its address, as soon as figures arrive."""
    demo = subprocess.Popen(
        [sys.executable, "-m", f"tests.support.{module}", "--data", str(data), "--scenario", "two", *arguments],
        cwd=ROOT,
    )
    try:
        with dashboard(data, "/healthz") as address:
            yield address
    finally:
        demo.terminate()
        demo.wait(20)


def answers(address: str) -> bool:
    """Whether an address answers 200."""
    with suppress(OSError), urlopen(address, timeout=5) as answer:
        return answer.status == 200
    return False
