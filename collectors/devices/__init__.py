"""What the host and its GPUs tell: one module a vendor, all behind `collectors.devices.base`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from collectors.devices import amd
from collectors.devices.base import DeviceBackend, DeviceReading
from collectors.devices.nvidia import NvidiaBackend
from store.model import SourceState


def backends() -> list[DeviceBackend]:
    """NVIDIA always, so that a missing driver is told; others where this host has such a device. To be closed."""
    return [NvidiaBackend(), *([amd.AmdBackend()] if amd.present() else [])]


def read_all(sources: Sequence[DeviceBackend], ts: datetime, host: str) -> DeviceReading:
    """One reading of all backends. Where one has devices, another without any has nothing to say."""
    readings = [source.read(ts, host) for source in sources]
    told = [reading for reading in readings if reading.devices] or readings[:1]
    states = {reading.state for reading in told}
    return DeviceReading(
        state=states.pop() if len(states) == 1 else SourceState.PARTIAL,
        detail="; ".join(reading.detail for reading in told if reading.detail) or None,
        devices=tuple(device for reading in told for device in reading.devices),
        samples=tuple(sample for reading in told for sample in reading.samples),
        processes=tuple(process for reading in told for process in reading.processes),
        untold=frozenset(device for reading in told for device in reading.untold),
    )
