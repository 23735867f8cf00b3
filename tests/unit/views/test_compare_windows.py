"""The windows of a Compare link. Expected texts are those of the URL form in `views.compare_windows`."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from views.compare_windows import (
    BadWindowError,
    EngineWindow,
    RunWindow,
    length_words,
    link,
    literal,
    moved,
    overlaps,
    parse,
    read,
    span_words,
    texts,
)

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
MORNING = EngineWindow("vllm-8000", NOW - 3 * HOUR, NOW - 2 * HOUR)
RUN = RunWindow("20261201T091500Z-4f2a", "Qwen3-8B ~ on vLLM", "8")


def test_a_window_is_its_own_text():
    assert MORNING.text() == "vllm-8000~2026-12-01T09:00:00Z~2026-12-01T10:00:00Z"
    assert parse(MORNING.text(), NOW) == (MORNING, None)
    assert parse(RUN.text(), NOW) == (RUN, None)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_every_window_survives_its_text(back, length):
    start = NOW - timedelta(seconds=back + length)
    window = EngineWindow("llama.cpp-8080-chat", start, start + timedelta(seconds=length))
    assert parse(window.text(), NOW) == (window, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("vllm-8000~2026-12-01T10:00:00Z~2026-12-01T09:00:00Z", "is not after"),
        ("vllm-8000~2026-12-02T10:00:00Z~2026-12-02T11:00:00Z", "lies in the future"),
        ("vllm-8000~1926-12-01T10:00:00Z~2026-12-01T09:00:00Z", "longer than ten years"),
        ("vllm-8000~yesterday~2026-12-01T09:00:00Z", "is not a time such as"),
        ("vllm-8000", "is not a window"),
        ("~2026-12-01T09:00:00Z~2026-12-01T10:00:00Z", "is not a window"),
        ("run:20261201T091500Z-4f2a", "is not a load test"),
    ],
)
def test_a_window_that_cannot_be_shown_says_why(text, says):
    with pytest.raises(BadWindowError, match=says):
        parse(text, NOW)
    found, problems = read([MORNING.text(), text], [], NOW)
    assert found == [MORNING]  # the rest of the link is not lost
    assert len(problems) == 1


def test_a_window_that_reaches_into_the_future_ends_now_and_says_so():
    found, problems = read(["vllm-8000~2026-12-01T11:00:00Z~2026-12-01T13:00:00Z"], [], NOW)
    assert found == [EngineWindow("vllm-8000", NOW - HOUR, NOW)]
    assert "shown until now" in problems[0]


def test_windows_are_shown_once_and_no_more_than_six():
    many = [EngineWindow(f"vllm-{port}", NOW - HOUR, NOW).text() for port in range(8)]
    found, problems = read([many[0], many[0], *many], [], NOW)
    assert len(found) == 6
    assert [("twice" in problem, "left out" in problem) for problem in problems] == [
        (True, False), (True, False), (False, True), (False, True)
    ]  # fmt: skip


def test_a_run_may_have_a_parameter_of_its_own():
    found, _ = read([MORNING.text()], ["20261201T091500Z-4f2a~Qwen3-8B ~ on vLLM~8"], NOW)
    assert found == [MORNING, RUN]


def test_a_link_opens_the_same_windows():
    made = link("http://host:8501/compare?w=old", [MORNING, RUN])
    assert made.startswith("http://host:8501/compare?w=vllm-8000~2026-12-01T09:00:00Z~")
    assert read(parse_qs(urlsplit(made).query)["w"], [], NOW) == ([MORNING, RUN], [])


def test_windows_are_moved_and_shifted():
    a, b, c = (EngineWindow(name, NOW - HOUR, NOW) for name in "abc")
    assert moved([a, b, c], 2, 0) == [c, a, b]
    assert moved([a, b, c], 0, 1) == [b, a, c]
    assert texts([MORNING.shifted(timedelta(days=1))]) == ["vllm-8000~2026-11-30T09:00:00Z~2026-11-30T10:00:00Z"]


def test_windows_of_one_engine_that_share_time_are_found():
    later = EngineWindow("vllm-8000", NOW - 2.5 * HOUR, NOW)
    after = EngineWindow("vllm-8000", NOW - 2 * HOUR, NOW)
    other = EngineWindow("vllm-8001", NOW - 3 * HOUR, NOW)
    assert overlaps([MORNING, RUN, later, other]) == [(0, 2)]
    assert overlaps([MORNING, after]) == []  # one ends where the other begins


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(90, "1 min 30 s"), (3600, "1 h"), (5400, "1 h 30 min"), (90_000, "1 d 1 h"), (59, "59 s"), (0.25, "250 ms")],
)
def test_lengths_are_told_to_two_units(seconds, words):
    assert length_words(seconds) == words


def test_a_span_names_its_day_once():
    assert span_words(NOW - HOUR, NOW) == "2026-12-01 11:00:00 to 12:00:00 UTC, 1 h"
    assert span_words(NOW - 24 * HOUR, NOW) == "2026-11-30 12:00:00 to 2026-12-01 12:00:00 UTC, 1 d"


def test_text_from_a_link_is_no_markdown():
    assert literal("[x](http://evil) ~~a~~ **b**") == r"\[x\]\(http\://evil\) \~\~a\~\~ \*\*b\*\*"
