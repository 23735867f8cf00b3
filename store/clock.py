"""
Whether rows may be deleted by the wall clock: a clock that was set wrong must cost no history.

What is old is told by the wall clock. When that moved ahead of the time that really passed, deleting waits until the
clock has kept to it for a while, so that a wrong date that somebody corrects again has deleted nothing. A clock that
was set back makes rows seem younger, which only keeps them longer.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

AHEAD = timedelta(hours=1)  # clocks are corrected by less than this every day
WAIT = timedelta(hours=24)
# A machine that starts with a wrong date is corrected over the network within minutes; one that was off for long is
# not kept from deleting for much longer than that either.
OFF = timedelta(days=1)
WAIT_AFTER_START = timedelta(hours=1)


def elapsed_seconds() -> float:
    """Seconds since some moment, also while the machine is suspended where the system counts that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Compares the wall clock with the time that passed, from round to round. `newest`: the last sample so far."""

    def __init__(self, newest: datetime | None) -> None:
        self._newest = newest
        self._before: tuple[datetime, float] | None = None
        self._wait_until = float("-inf")
        self.problem: str | None = None

    def may_delete(self, now: datetime, elapsed: float) -> bool:
        """Whether rows may be deleted as of `now`, at `elapsed_seconds`; else `problem` says why not."""
        ahead, waits = self._ahead(now, elapsed)
        if ahead < -AHEAD:
            self._wait_until = float("-inf")  # it was set back, as when a wrong date is corrected
        elif waits:
            self._wait_until = elapsed + waits.total_seconds()
            self.problem = (
                f"The clock is {ahead / timedelta(hours=1):,.0f} hours ahead of the last sample. Nothing is deleted "
                f"by age for {waits / timedelta(hours=1):.0f} h, in case that date is wrong."
            )
        self._before = (now, elapsed)
        if elapsed < self._wait_until:
            return False
        self.problem = None
        return True

    def _ahead(self, now: datetime, elapsed: float) -> tuple[timedelta, timedelta | None]:
        """How far the wall clock moved beyond the time that passed, and how long deleting waits for that."""
        if self._before is not None:
            ahead = (now - self._before[0]) - timedelta(seconds=elapsed - self._before[1])
            return ahead, WAIT if ahead > AHEAD else None
        if self._newest is None:
            return timedelta(0), None
        return now - self._newest, WAIT_AFTER_START if now - self._newest > OFF else None
