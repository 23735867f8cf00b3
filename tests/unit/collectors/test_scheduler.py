"""A slow or failing source delays nobody, a missed tick is skipped, and every run is accounted for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from collectors.scheduler import Outcome, Scheduler, next_due
from store.model import HostSample, Row, SourceHealth


class Recorder:
    """A sink that lets a test wait for a condition on the rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._changed = threading.Condition()

    def put(self, rows: Sequence[Row]) -> None:
        with self._changed:
            self.rows += rows
            self._changed.notify_all()

    def health(self, source_id: str) -> list[SourceHealth]:
        return [row for row in self.rows if isinstance(row, SourceHealth) and row.source_id == source_id]

    def wait_for(self, source_id: str, count: int) -> list[SourceHealth]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.health(source_id)) >= count, timeout=20)
        return self.health(source_id)


@dataclass
class Scripted:
    source_id: str
    outcomes: list[Outcome | Exception]
    gate: threading.Event | None = None
    interval_seconds: float = 0.01
    kind: str = "engine"
    found_by: str | None = "test"
    calls: list[float] = field(default_factory=list)

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        self.calls.append(monotonic_seconds)
        if self.gate is not None:
            self.gate.wait(20)
        outcome = self.outcomes[min(len(self.calls), len(self.outcomes)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


OK = Outcome(rows=(), state="ok")


def test_a_hanging_source_delays_no_other() -> None:
    sink, gate = Recorder(), threading.Event()
    scheduler = Scheduler(sink, "box")
    scheduler.add(Scripted("slow", [OK], gate=gate))
    scheduler.add(Scripted("quick", [OK]))
    assert len(sink.wait_for("quick", 5)) >= 5
    assert sink.health("slow") == []
    gate.set()
    assert scheduler.stop() == []


def test_a_fault_of_ours_is_reported_and_sampling_goes_on() -> None:
    sink = Recorder()
    scheduler = Scheduler(sink, "box")
    scheduler.add(Scripted("faulty", [ValueError("no such field"), OK]))
    rows = sink.wait_for("faulty", 2)
    scheduler.stop()
    assert rows[0].state == "error"
    assert "no such field" in (rows[0].detail or "")
    assert rows[1].state == "ok"


def test_a_finished_source_ends_and_can_be_added_again() -> None:
    sink = Recorder()
    scheduler = Scheduler(sink, "box")
    source = Scripted("engine:x", [Outcome(rows=(), state="stopped", finished=True), OK])
    scheduler.add(source)
    sink.wait_for("engine:x", 1)
    deadline = threading.Event()
    for _ in range(200):  # the thread ends right after its last row: re-adding is ignored until then
        scheduler.add(source)
        if len(sink.health("engine:x")) > 1:
            break
        deadline.wait(0.01)
    assert [row.state for row in sink.wait_for("engine:x", 2)[:2]] == ["stopped", "ok"]
    scheduler.stop()


def test_health_says_duration_interval_and_origin() -> None:
    sink = Recorder()
    scheduler = Scheduler(sink, "box")
    row = HostSample(datetime.now().astimezone(), "box", None, 2, None, None, None, None, None, None)
    scheduler.add(Scripted("host", [Outcome(rows=(row,), state="ok")], kind="host"))
    health = sink.wait_for("host", 1)[0]
    scheduler.stop()
    assert row in sink.rows
    assert health.interval_seconds == 0.01
    assert health.found_by == "test"
    assert health.duration_seconds is not None
    assert health.duration_seconds >= 0
    assert health.lateness_seconds is not None
    assert health.lateness_seconds >= 0


@given(
    due=st.floats(0, 1e6),
    late=st.floats(0, 1e4),
    interval=st.floats(0.2, 3600),
)
def test_missed_ticks_are_skipped_and_the_grid_is_kept(due: float, late: float, interval: float) -> None:
    now = due + late
    following = next_due(due, now, interval)
    assert following > now - 1e-6
    assert following <= now + interval + 1e-6
    steps = (following - due) / interval
    assert abs(steps - round(steps)) < 1e-3
