"""
The newest rows on their way to the store, kept in memory: who compares them need not ask the store.

Asking the store for the same took 70 MB and as much CPU as all sampling together.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from store.model import Device, DeviceSample, EngineSample, ProcessMemory, Row
from store.protocol import Sink

FRESH = timedelta(seconds=30)  # what is older than this beside an engine's newest sample no longer holds


@dataclass(frozen=True, slots=True)
class Held:
    """What one engine holds on one device, and that device."""

    device: Device
    sample: DeviceSample
    memory_bytes: int | None  # over all processes of the engine; None where one of them is not known
    method: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The newest of one engine: its sample, its host memory, and its devices in the driver's order."""

    sample: EngineSample
    host: ProcessMemory | None
    devices: tuple[Held, ...]


class NewestRows:
    """A `Sink` that passes everything on and remembers the newest row of each engine, process and device."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._samples: dict[str, EngineSample] = {}
        self._host_memory: dict[str, ProcessMemory] = {}
        self._device_memory: dict[str, dict[tuple[str, int | None], ProcessMemory]] = {}
        self._devices: dict[str, Device] = {}
        self._device_samples: dict[str, DeviceSample] = {}

    def put(self, rows: Sequence[Row]) -> None:
        """Remember and pass on."""
        with self._lock:
            for row in rows:
                self._remember(row)
        self._sink.put(rows)

    def _remember(self, row: Row) -> None:
        match row:
            case EngineSample():
                self._samples[row.engine_id] = row
            case ProcessMemory(engine_id=str() as engine_id, device_id=None):
                self._host_memory[engine_id] = row
            case ProcessMemory(engine_id=str() as engine_id, device_id=str() as device_id):
                mine = self._device_memory.setdefault(engine_id, {})
                mine[device_id, row.pid] = row
                for key in [key for key, old in mine.items() if row.ts - old.ts > FRESH]:
                    del mine[key]
            case Device():
                self._devices[row.device_id] = row
            case DeviceSample():
                self._device_samples[row.device_id] = row

    def of(self, engine_id: str) -> Observed | None:
        """The newest of an engine; None before its first sample."""
        with self._lock:
            sample = self._samples.get(engine_id)
            if sample is None:
                return None
            host = self._host_memory.get(engine_id)
            if host is not None and sample.ts - host.ts > FRESH:
                host = None
            rows = [r for r in self._device_memory.get(engine_id, {}).values() if sample.ts - r.ts <= FRESH]
            ids = sorted({str(row.device_id) for row in rows} & self._devices.keys() & self._device_samples.keys())
            held = [self._held(device_id, [row for row in rows if row.device_id == device_id]) for device_id in ids]
        return Observed(sample, host, tuple(sorted(held, key=lambda one: one.device.index)))

    def _held(self, device_id: str, rows: Sequence[ProcessMemory]) -> Held:
        newest = max(row.ts for row in rows)
        now = [row for row in rows if row.ts == newest]
        sizes = [row.memory_bytes for row in now]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        return Held(self._devices[device_id], self._device_samples[device_id], total, now[0].method)
