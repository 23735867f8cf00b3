"""What a device backend promises: one reading of all devices of one vendor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from store.model import Device, DeviceSample, SourceState


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that holds memory of a device, as the driver reports it."""

    device_id: str
    pid: int  # as the driver sees it; in a container this can be a pid of another pid namespace
    memory_bytes: int | None  # None: the driver lists the process but not what it holds
    method: str  # "nvml_process", "fdinfo"; "unified" where the pool is the host's memory


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """
    One reading of a backend.

    `devices` holds every device seen since the backend was opened, also lost ones, and is equal from
    reading to reading while no fact changes. `samples` holds one row for each of them. `state` and
    `detail` speak of the source as a whole: what was observed, and what to do when it is not ``ok``.
    """

    state: SourceState
    detail: str | None
    devices: tuple[Device, ...]
    samples: tuple[DeviceSample, ...]
    processes: tuple[DeviceProcess, ...]
    untold: frozenset[str] = frozenset()  # devices of which the driver does not tell what each process holds


class DeviceBackend(Protocol):
    """The devices of one vendor. Used by one thread at a time."""

    source_id: str  # "device:nvidia"

    def read(self, ts: datetime, host: str) -> DeviceReading:
        """Read every device once. Faults of the driver become states, they are never raised."""

    def close(self) -> None:
        """Let go of the driver. May be called twice."""
