"""Moving around in time. Expected ranges are worked out by hand in each test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from views import timerange
from views.timerange import Extent
from views.urlstate import BadRangeError, Window

NOW = datetime(2026, 12, 1, 12, 0, 5, tzinfo=UTC)
EXTENT = Extent(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, 12, 0, 4, tzinfo=UTC))


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def window(start: datetime, end: datetime) -> Window:
    return Window(start, end, live=False)


def test_without_a_range_it_is_the_last_day():
    shown = timerange.read({}, EXTENT, NOW)
    assert shown.preset == "24h"
    assert shown.window == window(NOW.replace(day=30, month=11, second=0), NOW.replace(second=0))


def test_viewers_of_one_preset_ask_the_same_question_for_a_while():
    # 24 h in 400 points are 216 s a point; a minute is the most that the newest data may be missing.
    one = timerange.read({"range": "24h"}, EXTENT, NOW)
    other = timerange.read({"range": "24h"}, EXTENT, NOW + timedelta(seconds=54))
    assert one == other
    assert timerange.read({"range": "24h"}, EXTENT, NOW + timedelta(seconds=55)) != one


def test_a_fixed_range_wins_over_a_preset():
    shown = timerange.read({"range": "7d", "from": "2026-11-02", "to": "2026-11-03"}, EXTENT, NOW)
    assert shown == timerange.Range(window(at(2), at(3)), None)


def test_everything_is_from_the_oldest_to_the_newest_row():
    shown = timerange.read({"range": "all"}, EXTENT, NOW)
    assert shown.window.start == EXTENT.oldest
    assert shown.window.end == datetime(2026, 12, 1, 12, 0, 5, tzinfo=UTC)


def test_everything_of_an_empty_store_is_a_range_too():
    assert timerange.read({"range": "all"}, Extent(None, None), NOW).window.seconds == 86400


def test_an_unknown_preset_is_told():
    with pytest.raises(BadRangeError, match=r"range=2w is not one of 1h, 6h, 24h, 7d, 30d, all"):
        timerange.read({"range": "2w"}, EXTENT, NOW)


def test_dragging_in_either_direction_selects_a_range():
    first, last = at(10, 6).timestamp() * 1000, at(10, 9).timestamp() * 1000
    assert timerange.chosen(last, first) == timerange.chosen(first, last) == window(at(10, 6), at(10, 9))


def test_a_click_is_no_selection_and_a_short_drag_shows_ten_seconds():
    moment = at(10, 6).timestamp() * 1000
    assert timerange.chosen(moment, moment) is None
    assert timerange.chosen(moment, moment + 2000) == window(at(10, 6), at(10, 6) + timedelta(seconds=10))
    assert timerange.chosen(float("nan"), moment) is None


def test_zooming_out_triples_around_the_middle():
    assert timerange.zoomed_out(window(at(10), at(11)), EXTENT, NOW) == window(at(9), at(12))


def test_zooming_out_does_not_go_beyond_now_or_the_oldest_row():
    # 3 days before now, tripled: the end stays at now, the whole 9 days lie before it.
    recent = window(NOW - timedelta(days=3), NOW)
    assert timerange.zoomed_out(recent, EXTENT, NOW) == window(NOW - timedelta(days=9), NOW)
    early = window(at(2), at(8))
    assert timerange.zoomed_out(early, EXTENT, NOW) == window(at(1), at(14))


def test_panning_moves_by_half_and_stops_at_the_ends():
    assert timerange.panned(window(at(10), at(12)), -1, EXTENT, NOW) == window(at(9), at(11))
    assert timerange.panned(window(at(10), at(12)), +1, EXTENT, NOW) == window(at(11), at(13))
    assert timerange.panned(window(at(1), at(3)), -1, EXTENT, NOW) is None
    assert timerange.panned(window(NOW - timedelta(hours=1), NOW), +1, EXTENT, NOW) is None


@given(st.integers(10, 86400 * 40), st.integers(0, 86400 * 40))
def test_zooming_out_shows_at_least_what_was_shown(length, ago):
    end = NOW - timedelta(seconds=ago)
    shown = window(end - timedelta(seconds=length), end)
    wider = timerange.zoomed_out(shown, EXTENT, NOW)
    assert wider.start <= shown.start
    assert wider.end >= shown.end
