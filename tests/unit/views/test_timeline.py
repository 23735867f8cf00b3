"""
States, gaps and their reasons. The tables have the columns of `store.protocol`; what is expected of them is
written down by hand, second by second.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from views import timeline
from views.urlstate import Window

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
LATER = START + timedelta(days=1)


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


WINDOW = Window(second(0), second(100), live=False)
RAW = {"bucket_seconds": "0", "gap_seconds": "6", "level": "raw"}  # a sample every 2 s


def engine_rows(rows: list[tuple[float, str | None]], metadata=RAW) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([second(at) for at, _ in rows], pa.timestamp("us", "UTC")),
            "engine_id": ["a"] * len(rows),
            "state": pa.array([state for _, state in rows], pa.string()),
        }
    ).replace_schema_metadata(metadata)


def host_rows(seconds: list[float]) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([second(at) for at in seconds], pa.timestamp("us", "UTC")),
            "memory_total_bytes": pa.array([1] * len(seconds), pa.int64()),
        }
    ).replace_schema_metadata({"bucket_seconds": "0", "gap_seconds": "3", "level": "raw"})


def event(at: float, kind: str, text: str, engine_id: str | None = "a", details: object = None) -> dict[str, object]:
    return {
        "ts": second(at),
        "kind": kind,
        "text": text,
        "engine_id": engine_id,
        "details": json.dumps(details) if details else None,
    }


def told(segments) -> list[tuple[float, float, str | None]]:
    return [
        ((found.start - START).total_seconds(), (found.end - START).total_seconds(), found.state) for found in segments
    ]


def test_states_follow_each_other_without_holes():
    rows = [(at, "ready" if at < 40 else "busy" if at < 60 else "ready") for at in range(0, 100, 2)]
    segments = timeline.of_engine("a", engine_rows(rows), WINDOW, [], [])
    assert told(segments) == [(0, 40, "ready"), (40, 60, "busy"), (60, 100, "ready")]


def test_an_engine_that_was_away_has_a_gap_with_its_last_event_as_the_reason():
    rows = [(at, "ready") for at in [*range(0, 40, 2), *range(60, 100, 2)]]
    events = [event(40, "stopped", "a stopped: Process 5 has ended."), event(60, "started", "a found")]
    segments = timeline.of_engine("a", engine_rows(rows), WINDOW, events, [])
    assert told(segments) == [(0, 40, "ready"), (40, 60, None), (60, 100, "ready")]
    assert "Process 5 has ended" in segments[1].why
    assert "12:00:40" in segments[1].why


def test_a_row_of_nulls_is_a_gap_and_not_a_state():
    rows = [(0.0, "ready"), (2.0, "ready"), (50.0, None), (98.0, "ready")]
    segments = timeline.of_engine("a", engine_rows(rows), WINDOW, [], [])
    assert told(segments) == [(0, 4, "ready"), (4, 98, None), (98, 100, "ready")]


def test_the_reason_of_a_state_is_what_was_observed():
    rows = [(at, "ready" if at < 40 else "unreachable") for at in range(0, 100, 2)]
    events = [event(40, "unreachable", "a does not answer: connection refused")]
    (_, down) = timeline.of_engine("a", engine_rows(rows), WINDOW, events, [])
    assert down.why == "a does not answer: connection refused"
    (_, unexplained) = timeline.of_engine("a", engine_rows(rows), WINDOW, [], [])
    assert "Nothing answers at the engine's address" in unexplained.why


def test_when_not_even_the_host_was_sampled_the_collector_did_not_run():
    events = [
        event(30, "collector_stopped", "Collector stopped", None),
        event(70, "collector_started", "Collector started", None),
    ]
    host = host_rows([*range(31), *range(70, 101)])
    silences = timeline.nothing_recorded(host, WINDOW, events, LATER)
    assert told(silences) == [(31, 70, None)]
    assert "Collector stopped (2026-12-01 12:00:30 UTC)" in silences[0].why
    rows = [(at, "ready") for at in [*range(0, 31, 2), *range(70, 101, 2)]]
    segments = timeline.of_engine("a", engine_rows(rows), WINDOW, events, silences)
    assert segments[1].why == silences[0].why


def test_what_has_not_happened_yet_is_no_outage():
    silences = timeline.nothing_recorded(host_rows(list(range(61))), WINDOW, [], second(61))
    assert told(silences) == [(61, 100, None)]
    assert silences[0].why == "This has not happened yet."


def test_the_host_is_sampled_but_for_the_silences():
    silences = timeline.nothing_recorded(host_rows([*range(31), *range(70, 101)]), WINDOW, [], LATER)
    assert told(timeline.of_host(silences, WINDOW)) == [(0, 31, "ok"), (31, 70, None), (70, 100, "ok")]


def test_buckets_stand_for_their_whole_width():
    hours = {"bucket_seconds": "10", "gap_seconds": "20", "level": "hour"}
    rows = [(at, "ready") for at in range(0, 100, 10)]
    assert told(timeline.of_engine("a", engine_rows(rows, hours), WINDOW, [], [])) == [(0, 100, "ready")]


def test_a_changed_command_line_says_which_options():
    before = ["llama-server", "-m", "a.gguf", "--ctx-size", "4096", "--metrics"]
    after = ["llama-server", "-m", "b.gguf", "--ctx-size", "4096", "--metrics", "--parallel", "8"]
    changes = {"changes": {"arguments": [json.dumps(before), json.dumps(after)]}}
    text = timeline.event_text(event(0, "restarted", "a restarted; arguments changed", details=changes))
    assert text == "a restarted; arguments: -m a.gguf \N{RIGHTWARDS ARROW} b.gguf, --parallel 8 added"


def test_an_event_without_readable_details_keeps_its_text():
    assert timeline.event_text(event(0, "stopped", "a stopped")) == "a stopped"
    odd = {**event(0, "restarted", "arguments changed"), "details": "{not JSON"}
    assert timeline.event_text(odd) == "arguments changed"
