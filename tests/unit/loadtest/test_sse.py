"""Server-sent events in pieces, and what chunks say of tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.answer import Answer, read_events
from loadtest.sse import EventReader
from tests.support.scripted_server import DONE, text, usage, usage_chunk


def events(pieces: list[bytes]) -> list[bytes]:
    reader = EventReader()
    return [data for piece in pieces for data in reader.feed(piece)] + list(reader.finish())


# The examples of the standard, section 9.2.6 (https://html.spec.whatwg.org/multipage/server-sent-events.html).
@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n", [b"first event", b"second event"]),
        (b"data:test\n\ndata: test\n\n", [b"test", b"test"]),
        (b"data:  third event\n\n", [b" third event"]),
    ],
)
def test_the_examples_of_the_standard(stream: bytes, expected: list[bytes]) -> None:
    assert events([stream]) == expected


LINES = st.lists(
    st.sampled_from([b"data: {}", b"data: a", b"data:", b": comment", b"event: error", b"id: 3", b"", b"", b"retry"]),
    max_size=12,
)


@given(lines=LINES, end=st.sampled_from([b"\n", b"\r\n", b"\r"]), cuts=st.lists(st.integers(0, 120), max_size=8))
def test_it_does_not_matter_where_the_stream_is_cut(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = end.join(lines) + end
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[begin:stop] for begin, stop in pairwise(at)]
    assert events(pieces) == events([stream]) == events([stream.replace(end, b"\n")])


def test_an_event_arrives_with_the_piece_that_completes_it() -> None:
    first, second = text("w"), text("w")
    pieces = [first[:10], first[10:] + second[:5], second[5:], usage_chunk(usage(3, 2)) + DONE]
    answer = Answer()
    for _ in read_events(answer, [1.0, 2.0, 3.0, 4.0], pieces):  # type: ignore[arg-type]
        pass
    assert list(answer.chunk_at) == [2.0, 3.0]
    assert (answer.done, answer.error, answer.counts.output_tokens) == (True, None, 2)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([1, 3, 4], [1, 2, 1]),  # in every chunk
        ([None, None, 9], [None, None, None]),  # only in the last: nothing is known of the others
        ([None, 3, 5], [None, None, 2]),
        ([4, 2, 3], [4, None, 1]),  # a count that goes back tells nothing
    ],
)
def test_tokens_of_a_chunk_are_known_from_its_own_count_and_the_one_before(
    told: list[int | None], expected: list[int | None]
) -> None:
    pieces = [text("w") if count is None else text("w", usage=usage(3, count)) for count in told]
    answer = Answer()
    for _ in read_events(answer, [0.0] * len(pieces), pieces):  # type: ignore[arg-type]
        pass
    assert answer.chunk_tokens == expected
