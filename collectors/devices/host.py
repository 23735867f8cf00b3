"""The host itself: CPU, memory, swap and load, from psutil."""

from __future__ import annotations

import os
from datetime import datetime

import psutil

from store.model import HostSample


class HostSource:
    """Reads the host. Keeps the CPU times of the previous reading, from which the busy share follows."""

    source_id = "host"

    def __init__(self) -> None:
        self._previous: tuple[float, float] | None = None

    def read(self, ts: datetime, host: str) -> HostSample:
        """
        One sample of the host.

        `cpu_fraction` is busy over total CPU time of all cores between the previous call and this
        one (`/proc/stat`: everything but idle and iowait), None on the first call.
        `memory_used_bytes` is total minus available, so page cache that can be dropped does not count.
        What the platform does not tell is None.
        """
        memory = psutil.virtual_memory()
        swap_total, swap_used = _swap()
        return HostSample(
            ts=ts,
            host=host,
            cpu_fraction=self._cpu_fraction(),
            cpu_count=psutil.cpu_count(logical=True),
            load_1m=_load(),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            memory_used_bytes=memory.total - memory.available,
            swap_total_bytes=swap_total,
            swap_used_bytes=swap_used,
        )

    def _cpu_fraction(self) -> float | None:
        times = psutil.cpu_times()
        # guest time is already part of user and nice time on Linux (proc(5)), so it is not added again
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        busy = total - times.idle - getattr(times, "iowait", 0.0)
        previous, self._previous = self._previous, (busy, total)
        if previous is None or total <= previous[1]:
            return None
        # iowait may run backwards by a tick (proc(5)), which would push the share past its bounds
        return min(1.0, max(0.0, (busy - previous[0]) / (total - previous[1])))


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def _swap() -> tuple[int | None, int | None]:
    try:
        swap = psutil.swap_memory()
    except (OSError, RuntimeError):  # no /proc/vmstat or no permission to ask
        return None, None
    return swap.total, swap.used
