"""
CPU of what runs all the time: a discovery pass, a device reading and an attribution.

`python -m benchmarks.discovery` starts 500 processes and 50 listening sockets, measures with them, and
ends them again. CPU time of this process only, mean of the repetitions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil

from collectors.attribution import EngineRoot, TreeUsage, device_rows
from collectors.devices.base import DeviceProcess, DeviceReading
from collectors.discovery import candidates
from collectors.engines import ADAPTERS
from collectors.processes import ProcessTable
from settings import CollectorSettings, Settings
from store.model import SourceState
from tests.support.fake_nvml import FakeDriver, FakeGpu, FakeProcess, compiler
from tests.support.processes import STANDIN, Standin, vllm
from tests.support.wait import free_port

PROCESSES, SOCKETS, ENGINES, GPUS = 500, 50, 8, 8


@contextmanager
def crowd(count: int) -> Iterator[None]:
    """So many further processes."""
    children = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def cpu_milliseconds(call: Callable[[], object], repetitions: int = 20) -> float:
    """Mean CPU time of one call after a first one that fills caches."""
    call()
    begin = time.process_time()
    for _ in range(repetitions):
        call()
    return (time.process_time() - begin) / repetitions * 1e3


def device_milliseconds(folder: Path) -> float | None:
    """Mean CPU time of one reading of 8 fake GPUs with 8 processes each; None without a C compiler."""
    if compiler() is None:
        return None
    driver = FakeDriver(folder)
    held = tuple(FakeProcess(1000 + n, 2**30) for n in range(8))
    driver.write([FakeGpu(f"GPU-{index}", processes=held) for index in range(GPUS)])
    answer = subprocess.run(
        [sys.executable, "-m", "tests.support.fake_nvml.reader"],
        env=driver.environment(),
        input="read\ncpu 200\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(answer.stdout.splitlines()[-1])) / 200 * 1e3


def main() -> None:
    """Measure and print the table."""
    rows: list[tuple[str, float | None, float]] = []
    print(f"starting {PROCESSES} processes, and waiting until they are no longer young ...", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(crowd(PROCESSES))
        ports = [free_port() for _ in range(SOCKETS)]
        plan = {"listen": [["127.0.0.1", port] for port in ports]}
        stack.enter_context(Standin([sys.executable, str(STANDIN)], plan))
        workers = {"children": [{"title": f"VLLM::Worker_TP{n}"} for n in range(2)]}
        engines = [
            stack.enter_context(
                vllm(
                    folder,
                    ["a-model", "--port", str(port := free_port())],
                    {"listen": [["127.0.0.1", port]], "children": [{"title": "VLLM::EngineCore", **workers}]},
                )
            )
            for _ in range(ENGINES)
        ]
        time.sleep(11)  # the command lines of younger processes are read at every pass
        rows += measure(folder, engines, ports)
        rows.append(
            (f"reading {GPUS} fake GPUs with 8 processes each", device_milliseconds(folder / "nvml"), 2.0),
        )
        count = len(psutil.pids())
    print(f"{count} processes, {SOCKETS + ENGINES} listening sockets of ours, {ENGINES} engines\n")
    print(f"{'what':58} {'CPU ms':>8} {'budget':>8}")
    for what, milliseconds, budget in rows:
        figure = "no cc" if milliseconds is None else f"{milliseconds:.2f}"
        print(f"{what:58} {figure:>8} {budget:>8.0f}")
    if any(milliseconds is not None and milliseconds > budget for _, milliseconds, budget in rows):
        sys.exit(1)


def measure(folder: Path, engines: Sequence[Standin], ports: Sequence[int]) -> list[tuple[str, float | None, float]]:
    """The figures that need the crowd."""
    settings = Settings(data=folder, collector=CollectorSettings(ports=tuple(ports[:10])))
    table, usage = ProcessTable(), TreeUsage()
    roots = [EngineRoot(f"vllm-{n}", f"e{n}", engine.pid) for n, engine in enumerate(engines)]
    held = [
        DeviceProcess(f"GPU-{n}", pid, 2**30, "nvml_process") for n, engine in enumerate(engines)
        for pid in engine.pids.values()
    ]  # fmt: skip
    reading = DeviceReading(SourceState.OK, None, (), (), tuple(held))
    found = len([e for e in candidates(settings, ADAPTERS, table.snapshot(sockets=True)) if e.pid in
                 {engine.pid for engine in engines}])  # fmt: skip
    if found != len(engines):
        raise SystemExit(f"{found} of {len(engines)} stand-in engines were listed: the figures would mean nothing")
    snapshot, now = table.snapshot(sockets=True), datetime.now(UTC)
    return [
        ("process table", cpu_milliseconds(table.snapshot), 50),
        ("process table and sockets", cpu_milliseconds(lambda: table.snapshot(sockets=True)), 50),
        (
            "discovery pass: table, sockets and candidates",
            cpu_milliseconds(lambda: candidates(settings, ADAPTERS, table.snapshot(sockets=True))),
            50,
        ),
        ("candidates from a snapshot", cpu_milliseconds(lambda: candidates(settings, ADAPTERS, snapshot)), 10),
        (
            f"attribution of {len(held)} device processes to {len(roots)} engines",
            cpu_milliseconds(lambda: device_rows(now, "host-a", roots, reading, snapshot)),
            2,
        ),
        (
            f"host memory and CPU of {len(roots)} engines, {len(held)} processes",
            cpu_milliseconds(lambda: usage.rows(now, time.monotonic(), "host-a", roots, snapshot)),
            10,
        ),
    ]


if __name__ == "__main__":
    main()
