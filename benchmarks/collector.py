"""
What collecting costs: `python -m benchmarks.collector [SECONDS]`.

A real collector process at its default intervals samples 8 stand-in vLLM servers (real body, moving
counters) and 8 GPUs of a fake NVIDIA driver. CPU share of one core and resident set are read from /proc
after a warm-up. Where a `prometheus` binary is on the PATH it scrapes the same 8 targets every 2 s
at the same time, as the peer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from settings import Settings
from store.client import StoreClient
from store.protocol import StoreUnavailableError
from tests.support.fake_nvml import FakeDriver, FakeGpu, FakeProcess, compiler

ROOT = Path(__file__).parents[1]
ENGINES = GPUS = 8
WARM_UP_SECONDS = 15.0
CPU_BUDGET, RSS_BUDGET_BYTES = 0.03, 200e6


@contextmanager
def fleet() -> Iterator[list[str]]:
    """URLs of the stand-in engines."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fleet", str(ENGINES)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield [process.stdout.readline().strip() for _ in range(ENGINES)]
        process.terminate()


@contextmanager
def collector(folder: Path, urls: list[str]) -> Iterator[psutil.Process]:
    """A collector on a fresh folder that has found every engine."""
    config = folder / "engine-room.toml"
    config.write_text("".join(f'[[target]]\nurl = "{url}"\n' for url in urls) + "[collector]\ndiscover = false\n")
    environment = {**os.environ, "ENGINE_ROOM_DATA": str(folder / "data"), "ENGINE_ROOM_CONFIG": str(config)}
    if compiler():
        driver = FakeDriver(folder / "nvml")
        gib = 2**30
        processes = (FakeProcess(os.getpid(), 40 * gib),)
        driver.write([FakeGpu(f"GPU-{i}", memory=(80 * gib, gib, 41 * gib), processes=processes) for i in range(GPUS)])
        environment = {**environment, **driver.environment()}
    process = subprocess.Popen([sys.executable, "-m", "collectors", "run"], cwd=ROOT, env=environment)
    client = StoreClient(Settings(data=folder / "data"))
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                states = [row["state"] for row in client.query("overview").to_pylist()]
            except StoreUnavailableError:
                states = []
            if states.count("ready") == ENGINES:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all engines were found: {states}")
            time.sleep(0.5)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def prometheus(folder: Path, urls: list[str]) -> Iterator[psutil.Process | None]:
    """A Prometheus that scrapes the same targets every 2 s, or None where there is none."""
    binary = shutil.which("prometheus")
    if binary is None:
        yield None
        return
    targets = ", ".join(f"'{urlsplit(url).netloc}'" for url in urls)
    (folder / "prometheus.yml").write_text(
        f"scrape_configs:\n- job_name: vllm\n  scrape_interval: 2s\n  static_configs:\n  - targets: [{targets}]\n"
    )
    process = subprocess.Popen(
        [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
         "--web.listen-address=127.0.0.1:0"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def cpu_seconds(process: psutil.Process | None) -> float:
    """User and system CPU time of a process so far."""
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def main(seconds: float = 60.0) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, fleet() as urls:
        folder = Path(name)
        with collector(folder, urls) as ours, prometheus(folder, urls) as peer:
            time.sleep(WARM_UP_SECONDS)
            before, began = (cpu_seconds(ours), cpu_seconds(peer)), time.monotonic()
            time.sleep(seconds)
            elapsed = time.monotonic() - began
            share = (cpu_seconds(ours) - before[0]) / elapsed
            rss = ours.memory_info().rss
            print(f"collector, {ENGINES} engines and {GPUS if compiler() else 0} GPUs, over {elapsed:.0f} s")
            print(f"  CPU           {share:7.2%} of a core    budget {CPU_BUDGET:.0%}")
            print(f"  resident set  {rss / 1e6:5.0f} MB           budget {RSS_BUDGET_BYTES / 1e6:.0f} MB")
            if peer is not None:
                theirs = (cpu_seconds(peer) - before[1]) / elapsed
                peer_mb = peer.memory_info().rss / 1e6
                print(f"  Prometheus    {theirs:7.2%} of a core, {peer_mb:.0f} MB (the engines only)")
                print(f"  ratio         {share / theirs:.1f} times the CPU of Prometheus")
            else:
                print("  Prometheus    not on the PATH, no peer")


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:2]))
