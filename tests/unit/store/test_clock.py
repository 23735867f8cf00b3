"""A date that was set wrong and corrected again has deleted nothing; a machine that was off deletes an hour later."""

from __future__ import annotations

from datetime import timedelta

from store.clock import Clock
from tests.support.rows import T0

HOUR = 3600.0


def test_a_clock_that_keeps_time_lets_delete() -> None:
    clock = Clock(T0)
    # An hour and a minute off at the start, then corrections by seconds.
    rounds = [(timedelta(minutes=61), 0.0), (timedelta(minutes=62, seconds=3), 60.0), (timedelta(minutes=63), 120.0)]
    assert [clock.may_delete(T0 + moment, elapsed) for moment, elapsed in rounds] == [True, True, True]
    assert clock.problem is None


def test_a_jump_ahead_waits_for_a_day_and_is_forgotten_when_it_is_taken_back() -> None:
    clock = Clock(T0)
    assert clock.may_delete(T0, 0.0)
    # Ten days ahead within a minute.
    wrong = T0 + timedelta(days=10, minutes=1)
    assert not clock.may_delete(wrong, 60.0)
    assert clock.problem == (
        "The clock is 240 hours ahead of the last sample. Nothing is deleted by age for 24 h, in case that date is "
        "wrong."
    )
    assert not clock.may_delete(wrong + timedelta(hours=23), 60.0 + 23 * HOUR)
    assert clock.may_delete(T0 + timedelta(hours=23, minutes=2), 120.0 + 23 * HOUR)
    assert clock.problem is None
    assert clock.may_delete(T0 + timedelta(hours=23, minutes=3), 180.0 + 23 * HOUR)


def test_a_jump_that_lasts_is_the_time_after_a_day() -> None:
    clock = Clock(T0)
    assert clock.may_delete(T0, 0.0)
    ahead = T0 + timedelta(days=10)
    assert not clock.may_delete(ahead, 1.0)
    assert not clock.may_delete(ahead + timedelta(hours=23.9), 1.0 + 23.9 * HOUR)
    assert clock.may_delete(ahead + timedelta(hours=24), 1.0 + 24 * HOUR)


def test_after_more_than_a_day_off_deleting_waits_for_an_hour() -> None:
    clock = Clock(T0)
    monday = T0 + timedelta(days=3)
    assert not clock.may_delete(monday, 10.0)
    assert not clock.may_delete(monday + timedelta(minutes=59), 10.0 + 59 * 60)
    assert clock.may_delete(monday + timedelta(minutes=60), 10.0 + HOUR)
    assert Clock(None).may_delete(monday, 10.0)  # an empty store has nothing to lose
