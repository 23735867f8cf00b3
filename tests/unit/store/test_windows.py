"""Which samples, minutes and hours a window is made of. Expected pieces are counted on a clock by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.rollup import State
from store.windows import Piece, pieces

DAY = datetime(2026, 12, 1, tzinfo=UTC)
MONTH_AGO = DAY - timedelta(days=30)


def clock(text: str, day: int = 0) -> datetime:
    hour, minute, second = (int(part) for part in text.split(":"))
    return DAY + timedelta(days=day, hours=hour, minutes=minute, seconds=second)


# Minutes are rolled up until 12:07, hours until 12:00; samples are there from the day before.
KNOWN = State(clock("12:07:00"), clock("12:00:00"), clock("00:00:00", -1), clock("00:00:00", -1), None)


def told(start: datetime, end: datetime, known: State = KNOWN) -> list[str]:
    return [
        f"{one.level} {one.start:%d %H:%M:%S} {one.end:%d %H:%M:%S}"
        for one in pieces(known, known.raw_from, start, end)
    ]


def test_a_quarter_of_an_hour_is_taken_from_samples():
    assert told(clock("09:00:10"), clock("09:15:10")) == ["raw 01 09:00:10 01 09:15:10"]


def test_a_longer_window_is_hours_with_minutes_and_samples_at_its_edges():
    assert told(clock("08:58:30"), clock("11:01:20")) == [
        "minute 01 08:59:00 01 09:00:00",
        "hour 01 09:00:00 01 11:00:00",
        "minute 01 11:00:00 01 11:01:00",
        "raw 01 08:58:30 01 08:59:00",
        "raw 01 11:01:00 01 11:01:20",
    ]


def test_what_is_newer_than_the_rollups_is_taken_from_samples():
    assert told(clock("10:00:00"), clock("12:09:30")) == [
        "hour 01 10:00:00 01 12:00:00",
        "minute 01 12:00:00 01 12:07:00",
        "raw 01 12:07:00 01 12:09:30",
    ]
    assert told(clock("12:08:00"), clock("15:00:00")) == ["raw 01 12:08:00 01 15:00:00"]


def test_where_samples_are_gone_edges_are_rounded_outwards():
    assert told(clock("08:58:30", -3), clock("09:01:20", -3)) == ["minute 28 08:58:00 28 09:02:00"]
    assert told(clock("08:58:30", -3), clock("11:01:20")) == [
        "minute 28 08:58:00 28 09:00:00",
        "hour 28 09:00:00 01 11:00:00",
        "minute 01 11:00:00 01 11:01:00",
        "raw 01 11:01:00 01 11:01:20",
    ]


def test_where_minutes_are_gone_too_whole_hours_stand_for_them():
    known = State(KNOWN.minute_until, KNOWN.hour_until, KNOWN.raw_from, KNOWN.histogram_from, clock("00:00:00", -2))
    assert told(clock("08:58:30", -3), clock("09:01:20", -3), known) == ["hour 28 08:00:00 28 10:00:00"]
    assert told(clock("08:58:30", -3), clock("01:02:00", -2), known) == [
        "hour 28 08:00:00 29 01:00:00",
        "minute 29 01:00:00 29 01:02:00",
    ]


def test_without_rollups_everything_is_samples():
    known = State(None, None, None, None, None)
    assert told(clock("00:00:00", -20), clock("10:00:00"), known) == ["raw 11 00:00:00 01 10:00:00"]


@pytest.mark.parametrize("length", [timedelta(0), timedelta(hours=-2)])
def test_a_window_that_does_not_last_is_empty(length):
    assert pieces(KNOWN, KNOWN.raw_from, clock("10:00:00"), clock("10:00:00") + length) == []


@given(st.integers(0, 40 * 86400), st.integers(1, 40 * 86400), st.booleans())
def test_pieces_cover_the_window_once(back, length, minutes_gone):
    start = clock("13:00:00") - timedelta(seconds=back)
    end = start + timedelta(seconds=length)
    gone = clock("00:00:00", -9) if minutes_gone else None
    known = State(KNOWN.minute_until, KNOWN.hour_until, KNOWN.raw_from, KNOWN.histogram_from, gone)
    found = sorted(pieces(known, known.raw_from, start, end), key=lambda piece: piece.start)
    for sooner, later in pairwise(found):
        assert sooner.end == later.start
    assert found[0].start <= start
    assert found[-1].end >= end
    widest = timedelta(hours=1) if minutes_gone else timedelta(minutes=1)
    assert start - found[0].start < widest
    assert found[-1].end - end < widest
    if known.raw_from is not None and start >= known.raw_from:
        assert (found[0].start, found[-1].end) == (start, end)  # exact where samples are there
    assert all(isinstance(piece, Piece) and piece.start < piece.end for piece in found)
