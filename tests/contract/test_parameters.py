"""What a reader passes is checked by name and type; odd ranges answer, they never fail or blow up."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest

from store.protocol import Parameter, UnknownQueryError
from tests.contract.conftest import Filled
from tests.support.rows import T0, at, device, device_sample, engine, epoch, held, host_sample, sample

SERIES = (
    "engine_series",
    "engine_memory_series",
    "device_series",
    "device_memory_series",
    "host_series",
    "host_memory_series",
)
EVER = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


def _fill(filled: Filled) -> None:
    filled.put(engine(), epoch(), device())
    for second in range(0, 120, 2):
        filled.writer.put(
            [
                sample(second, generation_tokens_total=10.0 * second, requests_running=1),
                device_sample(second, memory_used_bytes=1000),
                host_sample(second, cpu_fraction=0.5, memory_total_bytes=8000, memory_available_bytes=6000),
                held(second, 600),
                held(second, 300, device_id=None, method="rss"),
            ]
        )
    filled.writer.flush()


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("no_such_query", {}, "no_such_query"),
        ("overview; DROP TABLE event", {}, "DROP"),
        ("overview", {"sql": "1"}, "sql"),
        ("overview", {"window_seconds": "60"}, "number"),
        ("overview", {"window_seconds": True}, "number"),
        ("overview", {"window_seconds": float("nan")}, "number|JSON compliant"),
        ("overview", {"window_seconds": 0}, "more than 0"),
        ("overview", {"window_seconds": -5}, "more than 0"),
        ("overview", {"at": 1_700_000_000}, "time"),
        ("engine_series", {"start": T0}, "end"),
        ("engine_series", {"start": "yesterday", "end": T0}, "yesterday"),
        ("engine_series", {"start": T0.replace(tzinfo=None), "end": T0}, "time zone"),
        ("engine_series", {"start": T0, "end": T0, "points": "many"}, "number"),
        ("quantities", {"engine_id": 5}, "text"),
        ("events", {"start": T0, "end": T0, "limit": [1]}, "number"),
    ],
)
def test_a_wrong_parameter_is_named(filled: Filled, name: str, parameters: Mapping[str, Parameter], told: str) -> None:
    with pytest.raises(UnknownQueryError, match=told):
        filled.store.query(name, parameters)


def test_times_in_any_zone_and_as_text_are_the_same_moment(filled: Filled) -> None:
    _fill(filled)
    berlin = timezone(timedelta(hours=1))
    asked: list[Mapping[str, Parameter]] = [
        {"start": at(10), "end": at(20)},
        {"start": at(10).astimezone(berlin), "end": at(20).astimezone(berlin)},
        {"start": "2026-11-30T12:00:10Z", "end": "2026-11-30T13:00:20+01:00"},
    ]
    answers = [filled.store.query("engine_series", span).to_pylist() for span in asked]
    # Samples at 10, 12, 14, 16, 18 and 20 s: both ends belong to the range.
    assert [row["ts"] for row in answers[0]] == [at(second) for second in (10, 12, 14, 16, 18, 20)]
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (at(60), at(0)),
        (at(60), at(60) + timedelta(microseconds=-1)),
        (at(10**6), at(2 * 10**6)),
        (datetime(1900, 1, 1, tzinfo=UTC), datetime(1950, 1, 1, tzinfo=UTC)),
    ],
    ids=["reversed", "just reversed", "future", "before everything"],
)
def test_a_range_without_data_is_empty(filled: Filled, name: str, start: datetime, end: datetime) -> None:
    _fill(filled)
    assert filled.store.query(name, {"start": start, "end": end}).num_rows == 0


@pytest.mark.parametrize("name", SERIES)
def test_a_range_of_millennia_is_clamped_to_the_data(filled: Filled, name: str) -> None:
    _fill(filled)
    wide = filled.store.query(name, {"start": EVER[0], "end": EVER[1]})
    assert wide.to_pylist() == filled.store.query(name, {"start": at(0), "end": at(118)}).to_pylist()
    assert wide.num_rows > 0


@pytest.mark.parametrize(("points", "most"), [(-5, 10), (0, 10), (10, 10), (25, 25), (10**400, 2000)])
def test_points_bound_the_rows_of_a_line(filled: Filled, points: int, most: int) -> None:
    _fill(filled)
    rows = filled.store.query("engine_series", {"start": at(0), "end": at(118), "points": points}).num_rows
    assert 0 < rows <= most


def test_ranged_queries_without_series_answer_odd_ranges(filled: Filled) -> None:
    _fill(filled)
    for name in ("latency", "events"):
        for start, end in ((at(60), at(0)), EVER):
            assert filled.store.query(name, {"start": start, "end": end}).num_rows == 0


def test_overview_of_a_time_before_everything_is_empty(filled: Filled) -> None:
    _fill(filled)
    assert filled.store.query("overview", {"at": at(-3600)}).num_rows == 0
