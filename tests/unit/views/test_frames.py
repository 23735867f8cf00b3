"""
Data sets of the charts and CSV. Expected values are added up by hand from the rows in each test;
1 GiB = 2**30 bytes (IEC 80000-13).
"""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from views import frames
from views.palette import assign
from views.urlstate import Window

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(minutes=5), live=True)
GIB = 2**30
ENGINES = assign(["a", "b"], {})
DEVICES = {"gpu-0": "d0"}


def parts_table(rows: list[tuple[int, str, str | None, float | None]]) -> pa.Table:
    """Rows of `device_memory_series`: (second, part, engine_id, GiB)."""
    return pa.Table.from_pydict(
        {
            "ts": pa.array([START + timedelta(seconds=row[0]) for row in rows], pa.timestamp("us", "UTC")),
            "device_id": ["gpu-0"] * len(rows),
            "part": [row[1] for row in rows],
            "engine_id": pa.array([row[2] for row in rows], pa.string()),
            "memory_bytes": pa.array([None if row[3] is None else row[3] * GIB for row in rows], pa.float64()),
        }
    )


def stack(rows, second: int) -> dict[str, tuple[float, float]]:
    frame = frames.memory_frame(parts_table(rows), ENGINES, DEVICES, {"gpu-0": 24 * GIB}, WINDOW)
    at = frame[frame["ts"] == (START.timestamp() + second) * 1000]
    return {row.s: (row.lo, row.hi) for row in at.itertuples() if row.s != "total"}


def test_parts_stack_in_the_order_engines_others_driver():
    rows = [
        (10, "driver and unattributed", None, 0.5),
        (10, "other processes", None, 1.0),
        (10, "engine", "b", 4.0),
        (10, "engine", "a", 12.0),
    ]
    assert stack(rows, 10) == {"s0": (0.0, 12.0), "s1": (12.0, 16.0), "other": (16.0, 17.0), "driver": (17.0, 17.5)}


def test_a_holder_that_is_gone_holds_nothing_and_leaves_no_slope():
    rows = [
        (10, "engine", "a", 12.0),
        (10, "engine", "b", 4.0),
        (10, "driver and unattributed", None, 0.5),
        (12, "engine", "b", 4.0),
        (12, "driver and unattributed", None, 0.5),
    ]
    assert stack(rows, 12) == {"s0": (0.0, 0.0), "s1": (0.0, 4.0), "driver": (4.0, 4.5)}


def test_where_the_device_has_no_sample_nothing_is_known():
    rows = [
        (10, "engine", "a", 12.0),
        (10, "driver and unattributed", None, 0.5),
        (11, "driver and unattributed", None, None),
        (12, "engine", "a", 12.0),
        (12, "driver and unattributed", None, 0.5),
    ]
    low, high = stack(rows, 11)["s0"]
    assert low != low  # NaN: the area breaks here
    assert high != high


def test_the_installed_memory_spans_the_window():
    frame = frames.memory_frame(parts_table([]), ENGINES, DEVICES, {"gpu-0": 24 * GIB}, WINDOW)
    total = frame[frame["s"] == "total"]
    assert list(total["hi"]) == [24.0, 24.0]
    assert list(total["ts"]) == [WINDOW.start.timestamp() * 1000, WINDOW.end.timestamp() * 1000]


def test_a_device_that_does_not_tell_its_size_has_no_line():
    frame = frames.memory_frame(parts_table([]), ENGINES, DEVICES, {"gpu-0": None}, WINDOW)
    assert "total" not in set(frame["s"])


def test_events_outside_the_window_are_left_out():
    events = [
        {"ts": START - timedelta(seconds=1), "text": "before"},
        {"ts": START + timedelta(seconds=1), "text": "vLLM restarted"},
    ]
    frame = frames.event_frame(events, WINDOW)
    assert list(frame["text"]) == ["vLLM restarted"]
    assert list(frame["when"]) == ["2026-12-01 12:00:01 UTC"]


def test_csv_has_iso_times_and_every_digit():
    table = pa.Table.from_pydict(
        {
            "ts": pa.array([START, START + timedelta(microseconds=1_500_000)], pa.timestamp("us", "UTC")),
            "engine_id": ["a", "b"],
            "generation_tokens_per_second": [0.1 + 0.2, None],
        }
    )
    columns = ("ts", "engine_id", "generation_tokens_per_second")
    rows = list(csv.DictReader(io.StringIO(frames.csv_bytes(table, columns, {}).decode())))
    assert rows[0] == {
        "time_utc": "2026-12-01T12:00:00.000000Z",
        "engine_id": "a",
        "generation_tokens_per_second": "0.30000000000000004",  # IEEE 754 double, shortest round trip
    }
    assert rows[1]["time_utc"] == "2026-12-01T12:00:01.500000Z"
    assert rows[1]["generation_tokens_per_second"] == ""  # not known, not 0
    only = frames.csv_bytes(table, columns, {"engine_id": frozenset({"b"})}).decode().splitlines()
    assert len(only) == 2


@pytest.mark.parametrize(("minutes", "step"), [(5, 2), (15, 6), (60, 24)])
def test_a_crosshair_step_is_about_one_point_wide(minutes, step):
    window = Window(START, START + timedelta(minutes=minutes), live=True)
    assert frames.grid_seconds(window, 150) == step


def test_a_new_engine_changes_no_colour() -> None:
    before = assign(["vllm-8000", "llama.cpp-8080"], {})
    after = assign(["vllm-8000", "llama.cpp-8080", "a-new-one"], {})
    assert {key: after[key] for key in before} == before
    assert len({series.key for series in after.values()}) == 3
