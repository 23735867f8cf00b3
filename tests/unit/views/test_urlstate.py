"""Links that freeze a view. Expected values: RFC 3986 escaping and ISO 8601, written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from views.urlstate import BadRangeError, Window, frozen_window, live_window, share_link

NOON = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def test_no_range_is_the_live_view():
    assert frozen_window({"window": "15"}) is None


@pytest.mark.parametrize(
    "text", ["2026-12-01T12:00:00Z", "2026-12-01T12:00:00", "2026-12-01 12:00", "2026-12-01T13:00:00+01:00",
             "2026-12-01T13:00:00 01:00"],
)  # fmt: skip
def test_times_are_read_as_utc_unless_they_say_otherwise(text):
    window = frozen_window({"from": text, "to": "2026-12-01T12:05:00Z"})
    assert window is not None
    assert window.start == NOON
    assert window.seconds == 300
    assert not window.live


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"from": "2026-12-01T12:00:00Z"}, "only one of"),
        ({"from": "yesterday", "to": "2026-12-01T12:00:00Z"}, "from=yesterday"),
        ({"from": "2026-12-01T12:00:00Z", "to": "2026-12-01T11:00:00Z"}, "not after"),
        ({"from": "2026-12-01T12:00:00Z", "to": "2026-12-01T12:00:00Z"}, "not after"),
        ({"from": "0001-01-01T00:00:00+23:00", "to": "2026-12-01T12:00:00Z"}, "not a time"),
        ({"from": "1900-01-01", "to": "2026-12-01"}, "ten years"),
    ],
)
def test_a_bad_range_says_what_is_wrong(parameters, says):
    with pytest.raises(BadRangeError, match=says):
        frozen_window(parameters)


def test_viewers_with_one_interval_ask_the_same_question():
    first = live_window(5, 2, datetime(2026, 12, 1, 12, 0, 0, 100, tzinfo=UTC))
    second = live_window(5, 2, datetime(2026, 12, 1, 12, 0, 1, 999_000, tzinfo=UTC))
    assert first == second == Window(datetime(2026, 12, 1, 11, 55, tzinfo=UTC), NOON, live=True)


def test_a_shared_link_brings_back_the_same_view():
    window = Window(datetime(2026, 12, 1, 11, 55, tzinfo=UTC), NOON, live=True)
    link = share_link("http://10.0.0.7:8501/live?window=15#top", window, ["vllm-8000", "llama.cpp-8080"])
    parts = urlsplit(link)
    assert (parts.scheme, parts.netloc, parts.path) == ("http", "10.0.0.7:8501", "/live")
    query = parse_qs(parts.query)
    assert query["engines"] == ["vllm-8000", "llama.cpp-8080"]
    assert query["from"] == ["2026-12-01T11:55:00Z"]
    again = frozen_window({name: values[0] for name, values in query.items()})
    assert again == Window(window.start, window.end, live=False)
