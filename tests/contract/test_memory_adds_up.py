"""
Memory that adds up, whatever was read: random readings, written by the real writer, asked for by name.

The expected sums are the figures that were written: used memory of a device, installed memory of the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from settings import Settings
from store.local import LocalStore
from store.model import Row
from store.writer import Writer
from tests.support.rows import at, device, device_sample, engine, epoch, held, host_sample

Readings = list[tuple[int, dict[str | None, int | None]]]
ENGINES = ("vllm-8000", "llama.cpp-8080", "sglang-30000")
TOTAL = 80_000
sizes = st.one_of(st.none(), st.integers(0, TOTAL))
# At each second: what a device has in use, and what each engine and one stranger hold there (None: not told).
moments = st.lists(
    st.tuples(st.integers(0, TOTAL), st.dictionaries(st.sampled_from((*ENGINES, None)), sizes)), min_size=1, max_size=12
)
points = st.sampled_from((400, 3))


def summed(rows: list[dict[str, Any]]) -> dict[Any, float]:
    total: dict[Any, float] = {}
    for row in rows:
        if row["memory_bytes"] is not None:
            total[row["ts"]] = total.get(row["ts"], 0.0) + row["memory_bytes"]
    return total


@dataclass
class Telling:
    """A store that each example fills for an hour of its own."""

    store: LocalStore
    writer: Writer
    hours: Iterator[int]

    def answers(self, readings: Readings, most: int, *, on_host: bool) -> tuple[Any, Any]:
        """The parts, and the series that they have to sum to."""
        begin = next(self.hours) * 3600.0
        rows: list[Row] = []
        for second, (used, holders) in enumerate(readings, start=round(begin)):
            if on_host:
                free = {"memory_total_bytes": TOTAL, "memory_available_bytes": TOTAL - used}
                rows.append(host_sample(second, memory_used_bytes=used, **free))
            else:
                rows.append(device_sample(second, memory_used_bytes=used))
            for place, (owner, size) in enumerate(holders.items(), start=1):
                if owner is not None or not on_host:
                    where = {"device_id": None, "method": "rss"} if on_host else {}
                    rows.append(held(second, size, engine_id=owner, pid=place, **where))
        self.writer.put(rows)
        self.writer.flush()
        span: dict[str, Any] = {"start": at(begin), "end": at(begin + 60), "points": most}
        parts, whole = ("host_memory_series", "host_series") if on_host else ("device_memory_series", "device_series")
        return self.store.query(parts, span).to_pylist(), self.store.query(whole, span).to_pylist()


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telling]:
    known = Settings(data=tmp_path_factory.mktemp("data"), host="host-a")
    writer = Writer(known.store_path, known.store, host="host-a")
    writer.put([device(), *(engine(one) for one in ENGINES), *(epoch(f"{one}@1", one) for one in ENGINES)])
    yield Telling(LocalStore(writer, known.store), writer, itertools.count())
    writer.close()


@settings(max_examples=25, deadline=None)
@given(moments, points)
def test_the_parts_of_a_device_sum_to_what_is_used(telling: Telling, readings: Readings, most: int) -> None:
    parts, whole = telling.answers(readings, most, on_host=False)
    assert summed(parts) == pytest.approx({row["ts"]: row["memory_used_bytes"] for row in whole}, rel=1e-12, abs=1e-6)
    known = [row for row in parts if row["memory_bytes"] is not None]  # None: the part was away for a while
    assert all((row["memory_bytes"] < 0) == (row["part"] == "counted twice") for row in known)


AWAY: Readings = [(0, {"vllm-8000": 0} if second in (5, 10) else {}) for second in range(11)]


@settings(max_examples=25, deadline=None)
@example(AWAY, 3)  # an engine that was away leaves a row of NULLs in between
@given(moments, points)
def test_the_parts_of_the_host_sum_to_what_is_installed(telling: Telling, readings: Readings, most: int) -> None:
    parts, whole = telling.answers(readings, most, on_host=True)
    assert summed(parts) == pytest.approx({row["ts"]: TOTAL for row in whole}, rel=1e-12, abs=1e-6)
    known = [row for row in parts if row["part"] == "engine" and row["memory_bytes"] is not None]
    assert {row["method"] for row in known} <= {"rss"}


def test_a_bucket_without_a_list_takes_the_newest_one_before(telling: Telling) -> None:
    """The host is read every second, process trees every two: no engine may seem to let its memory go at the edge."""
    readings: Readings = [(900, {"vllm-8000": 500} if second % 2 else {}) for second in range(13)]  # buckets of 6 s
    parts, whole = telling.answers(readings, 3, on_host=True)
    mine = {row["ts"]: row["memory_bytes"] for row in parts if row["engine_id"] == "vllm-8000"}
    assert mine == {row["ts"]: 500 for row in whole}
