"""
GPUs whose driver tells no process's memory (WSL, MIG): real processes, readings as such a driver gives them.

Expected values: differences of the used bytes that the test reports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from collectors.attribution import EngineRoot
from collectors.devices.base import DeviceProcess, DeviceReading
from collectors.machine_sources import DeviceSampling
from collectors.processes import ProcessTable
from store.model import Device, DeviceSample, ProcessMemory, SourceState
from tests.support.processes import llama_server, vllm

GIB = 2**30
LONG_BEFORE = 120.0


@dataclass
class Driver:
    """Two GPUs of a driver that lists nothing, or processes without their memory. Stands where NVML would."""

    source_id: str = "device:nvidia"
    used: dict[str, int] = field(default_factory=lambda: {"GPU-a": GIB, "GPU-b": GIB})
    processes: tuple[DeviceProcess, ...] = ()
    untold: frozenset[str] = frozenset(("GPU-a", "GPU-b"))

    def read(self, ts: datetime, host: str) -> DeviceReading:
        devices = tuple(
            Device(host, name, "nvidia", place, "NVIDIA RTX", 24 * GIB, "580", datetime(2026, 12, 1, tzinfo=UTC))
            for place, name in enumerate(self.used)
        )
        samples = tuple(
            DeviceSample(ts, host, name, "ok", None, memory_total_bytes=24 * GIB, memory_used_bytes=used)
            for name, used in self.used.items()
        )
        return DeviceReading(SourceState.OK, None, devices, samples, self.processes, self.untold)

    def close(self) -> None:
        """Nothing to let go of."""


class Host:
    """The driver, the engines that run, and the source that reads both. A reading is at a time of the test's choice."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.engines: list[EngineRoot] = []
        self.table = ProcessTable()
        self.source = DeviceSampling(self.driver, "host-a", 1.0, self.table, lambda: self.engines)

    def read(self, seconds_from_now: float = 0.0) -> tuple[dict[tuple[str | None, str | None], Any], str]:
        ts = datetime.fromtimestamp(datetime.now(UTC).timestamp() + seconds_from_now, UTC)
        self.table.snapshot()  # so that what began just now is in it
        outcome = self.source.run(ts, 1.0)
        rows = [row for row in outcome.rows if isinstance(row, ProcessMemory)]
        return {(row.engine_id, row.device_id): (row.method, row.memory_bytes) for row in rows}, outcome.detail or ""


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_growth_since_its_start_is_an_engine_s(host: Host, running: ExitStack, tmp_path: Path) -> None:
    host.read(-LONG_BEFORE)
    engine = running.enter_context(vllm(tmp_path, ["a-model"], {}))
    host.driver.used["GPU-a"] = 15 * GIB
    host.engines = [EngineRoot("vllm-8000", "e1", engine.pid)]
    rows, detail = host.read()
    assert rows == {("vllm-8000", "GPU-a"): ("device_delta", 14 * GIB)}  # GPU-b did not grow
    assert "growth of the device" in detail


def test_rows_without_a_figure_give_way_to_the_estimate(host: Host, running: ExitStack, tmp_path: Path) -> None:
    host.read(-LONG_BEFORE)
    engine = running.enter_context(vllm(tmp_path, ["a-model"], {"children": [{"title": "VLLM::EngineCore"}]}))
    host.driver.used["GPU-a"] = 15 * GIB
    core, stranger = engine.pids["VLLM::EngineCore"], os.getpid()
    host.driver.processes = tuple(DeviceProcess("GPU-a", pid, None, "nvml_process") for pid in (core, stranger))
    host.engines = [EngineRoot("vllm-8000", "e1", engine.pid)]
    assert host.read()[0] == {
        ("vllm-8000", "GPU-a"): ("device_delta", 14 * GIB),
        (None, "GPU-a"): ("nvml_process", None),
    }


def test_an_engine_that_was_there_before_the_collector_has_no_figure(
    host: Host, running: ExitStack, tmp_path: Path
) -> None:
    engine = running.enter_context(vllm(tmp_path, ["a-model"], {}))
    host.engines = [EngineRoot("vllm-8000", "e1", engine.pid)]
    rows, detail = host.read(10)
    assert rows["vllm-8000", "GPU-a"] == ("none", None)
    assert "before this collector watched" in detail


def test_two_that_began_at_about_the_same_time_are_not_told_apart(
    host: Host, running: ExitStack, tmp_path: Path
) -> None:
    host.read(-LONG_BEFORE)
    first = running.enter_context(vllm(tmp_path, ["a-model"], {}))
    second = running.enter_context(llama_server(tmp_path, [], {}))
    host.driver.used["GPU-a"] = 20 * GIB
    host.engines = [EngineRoot("vllm-8000", "e1", first.pid), EngineRoot("llama.cpp-8080", "e2", second.pid)]
    rows, detail = host.read()
    assert {value for (_, device), value in rows.items() if device == "GPU-a"} == {("none", None)}
    assert "began after it" in detail


def test_an_engine_that_ended_makes_the_growth_of_another_say_nothing(
    host: Host, running: ExitStack, tmp_path: Path
) -> None:
    old = running.enter_context(llama_server(tmp_path, [], {}))
    host.engines = [EngineRoot("llama.cpp-8080", "e2", old.pid)]
    host.read(-LONG_BEFORE)
    engine = running.enter_context(vllm(tmp_path, ["a-model"], {}))
    host.driver.used["GPU-a"] = 15 * GIB
    host.engines = [EngineRoot("vllm-8000", "e1", engine.pid)]
    rows, detail = host.read(5)
    assert rows["vllm-8000", "GPU-a"] == ("none", None)
    assert "ended" in detail


def test_a_process_that_cannot_be_seen_has_no_figure(host: Host) -> None:
    host.read(-LONG_BEFORE)
    host.engines = [EngineRoot("vllm-8000", "e1", None)]
    rows, detail = host.read()
    assert rows["vllm-8000", "GPU-a"] == ("none", None)
    assert "can't be seen" in detail


def test_a_device_whose_driver_tells_is_not_estimated(host: Host, running: ExitStack, tmp_path: Path) -> None:
    host.read(-LONG_BEFORE)
    engine = running.enter_context(vllm(tmp_path, ["a-model"], {}))
    host.driver.used["GPU-a"] = 15 * GIB
    host.driver.processes = (DeviceProcess("GPU-a", engine.pid, 13 * GIB, "nvml_process"),)
    host.driver.untold = frozenset()
    host.engines = [EngineRoot("vllm-8000", "e1", engine.pid)]
    assert host.read()[0] == {("vllm-8000", "GPU-a"): ("nvml_process", 13 * GIB)}
