"""The host, its devices and the memory of engines, sampled on a schedule: from readings to rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from collectors.attribution import EngineRoot, TreeUsage, device_rows
from collectors.device_delta import DeviceDelta
from collectors.devices.base import DeviceBackend, DeviceReading
from collectors.devices.host import HostSource
from collectors.processes import ProcessSnapshot, ProcessTable
from collectors.scheduler import Outcome
from store.disk import measure
from store.model import Device, Event, ProcessMemory, Row, SourceState
from store.writer import Writer

DISK_INTERVAL_SECONDS = 300.0
SNAPSHOT_AGE_SECONDS = 5.0  # how old a process table may be when memory is given to engines
Engines = Callable[[], Sequence[EngineRoot]]


class HostSampling:
    """`host_sample`."""

    kind = "host"
    source_id = "host"
    found_by = "this host"

    def __init__(self, host: str, interval_seconds: float) -> None:
        self.interval_seconds = interval_seconds
        self._host = host
        self._source = HostSource()

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Read CPU, memory and swap once."""
        return Outcome(rows=[self._source.read(ts, self._host)], state=SourceState.OK)


class ProcessSampling:
    """`process_memory` in host memory: what the process tree of each engine holds and how much CPU it uses."""

    kind = "host"
    source_id = "processes"
    found_by = "process trees of the engines"

    def __init__(self, host: str, interval_seconds: float, processes: ProcessTable, engines: Engines) -> None:
        self.interval_seconds = interval_seconds
        self._host = host
        self._processes = processes
        self._engines = engines
        self._usage = TreeUsage()

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Sum the tree of every engine once."""
        engines = self._engines()
        if not engines:
            return Outcome(rows=(), state=SourceState.OK, detail="no engine runs")
        snapshot = self._processes.snapshot(max_age_seconds=SNAPSHOT_AGE_SECONDS)
        rows = self._usage.rows(ts, monotonic_seconds, self._host, engines, snapshot)
        return Outcome(rows=rows, state=SourceState.OK)


class StoreSampling:
    """How the store itself is: its writer's health, every ten seconds, and every five minutes its size."""

    kind = "store"
    source_id = "store"
    interval_seconds = 10.0

    def __init__(self, writer: Writer, host: str) -> None:
        self._writer = writer
        self._host = host
        self._measured: float | None = None
        self.found_by = "this collector"

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Ask the writer once."""
        state, detail = self._writer.health()
        rows: tuple[Row, ...] = ()
        if self._measured is None or monotonic_seconds - self._measured >= DISK_INTERVAL_SECONDS:
            self._measured = monotonic_seconds
            rows = (measure(self._writer.path, ts, self._host),)
        return Outcome(rows=rows, state=state, detail=detail)


class DeviceSampling:
    """`device`, `device_sample` and `process_memory` on the devices of one vendor, with their events."""

    kind = "device"

    def __init__(
        self, backend: DeviceBackend, host: str, interval_seconds: float, processes: ProcessTable, engines: Engines
    ) -> None:
        self.interval_seconds = interval_seconds
        self.source_id = backend.source_id
        self.found_by: str | None = None
        self._backend = backend
        self._host = host
        self._processes = processes
        self._engines = engines
        self._devices: dict[str, Device] = {}
        self._states: dict[str, str] = {}
        self._delta = DeviceDelta()

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Read every device once."""
        reading = self._backend.read(ts, self._host)
        rows: list[Row] = []
        for device in reading.devices:
            if self._devices.get(device.device_id) != device:
                self._devices[device.device_id] = device
                rows.append(device)
        for sample in reading.samples:
            rows.append(sample)
            before = self._states.get(sample.device_id)
            self._states[sample.device_id] = sample.state
            if before is not None and before != sample.state:
                rows.append(self._event(sample.device_id, before, sample.state, sample.detail, ts))
        self._delta.watch(ts, reading.samples)
        details = [reading.detail]
        engines = self._engines()
        if reading.processes or (reading.samples and engines):
            snapshot = self._processes.snapshot(max_age_seconds=SNAPSHOT_AGE_SECONDS)
            held, unseen = device_rows(ts, self._host, engines, reading, snapshot)
            grown, why = self._grown(ts, engines, reading, snapshot)
            owned = {(row.device_id, row.engine_id) for row in grown}
            rows += [row for row in held if row.engine_id is None or (row.device_id, row.engine_id) not in owned]
            rows += grown
            details += [unseen, why]
        detail = " ".join(text for text in details if text) or None
        if reading.devices:
            self.found_by = f"{len(reading.devices)} device(s) listed by the driver"
        return Outcome(rows=rows, state=reading.state, detail=detail)

    def _grown(
        self, ts: datetime, engines: Sequence[EngineRoot], reading: DeviceReading, snapshot: ProcessSnapshot
    ) -> tuple[list[ProcessMemory], str | None]:
        """What engines hold of the devices of which the driver tells no process's memory."""
        told = {held.device_id for held in reading.processes if held.memory_bytes is not None}
        untold = [
            sample.device_id
            for sample in reading.samples
            if sample.memory_used_bytes is not None and sample.device_id in reading.untold - told
        ]
        return self._delta.rows(ts, self._host, engines, snapshot, untold)

    def _event(self, device_id: str, before: str, now: str, detail: str | None, ts: datetime) -> Event:
        device = self._devices.get(device_id)
        name = f"GPU {device.index} ({device.name})" if device else device_id
        text = f"{name} is {now.replace('_', ' ')} (was {before.replace('_', ' ')})"
        return Event(
            ts=ts,
            host=self._host,
            engine_id=None,
            epoch_id=None,
            device_id=device_id,
            kind="device_" + ("ok" if now == SourceState.OK else "fault"),
            text=f"{text}: {detail}" if detail else text,
        )
