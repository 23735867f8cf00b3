"""The same series from samples, from minutes and from hours: peaks, sums and gaps survive, the present is there."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from settings import StoreSettings
from store.maintenance import Maintenance
from tests.contract.conftest import Filled
from tests.support.rows import ENGINE, at, device, device_sample, engine, epoch, held, histogram, host_sample, sample

DAY = 86_400.0
SHORT = StoreSettings(raw_days=2, detail_days=2, minute_days=3)
# After so many seconds, with the settings above, what was sampled at T0 is left in these rows.
AFTER = {"raw": 7300.0, "minute": 2.6 * DAY, "hour": 9 * DAY}
INF = math.inf
# Hours of samples for each test: about figures, not about the way to them.
pytestmark = pytest.mark.parametrize("filled", ["local"], indirect=True)


@pytest.fixture(params=["raw", "minute", "hour"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _keep(filled: Filled, level: str) -> None:
    Maintenance(filled.writer, SHORT).once(at(AFTER[level]))


def _ask(filled: Filled, name: str, level: str, end: float = 7200, **given: Any) -> list[dict[str, Any]]:
    points = 2000 if level == "raw" else 400
    table = filled.store.query(name, {"start": at(0), "end": at(end), "points": points, **given})
    assert table.schema.metadata[b"level"].decode() == level
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_rates_and_their_peaks_are_those_of_the_samples(filled: Filled, level: str) -> None:
    """20 tokens/s for two hours but for one pair of 2 s with 500 tokens: 250 tokens/s."""
    filled.put(engine(), epoch())
    tokens, rows = 0.0, []
    for second in range(0, 7202, 2):
        tokens += 500 if second == 4000 else 40 if second else 0
        rows.append(sample(second, generation_tokens_total=tokens, requests_running=3 if second == 100 else 1))
    filled.put(*rows)
    _keep(filled, level)
    known = [row for row in _ask(filled, "engine_series", level) if row["generation_tokens_per_second"] is not None]
    assert max(row["generation_tokens_per_second_max"] for row in known) == pytest.approx(250)
    assert min(row["generation_tokens_per_second_min"] for row in known) == pytest.approx(20)
    assert max(row["requests_running_max"] for row in known) == 3
    assert {row["label"] for row in known} == {f"model on {ENGINE}"}
    assert {row["generation_source"] for row in known} == {"settled"}
    if level == "hour":  # (1799 x 40) / (1799 x 2 s) in the first hour, 1800 pairs of which one is the peak in the next
        assert [row["generation_tokens_per_second"] for row in known] == pytest.approx(
            [20, (1799 * 40 + 500) / 3600, 20]
        )


def test_parts_of_memory_sum_to_what_is_used(filled: Filled, level: str) -> None:
    filled.put(engine(), epoch(), device())
    rows: list[Any] = []
    for second in range(0, 7201, 10):
        used = 5000 + second % 600
        rows.append(device_sample(second, memory_used_bytes=used))
        rows.append(host_sample(second, memory_total_bytes=80_000, memory_available_bytes=80_000 - used))
        if second % 900 < 600:  # the engine is away for a third of the time
            rows.append(held(second, 4321))
            rows.append(held(second, 3210, device_id=None, method="rss"))
    filled.put(*rows)
    _keep(filled, level)
    used = {row["ts"]: row["memory_used_bytes"] for row in _ask(filled, "device_series", level)}
    parts: dict[Any, float] = {}
    for row in _ask(filled, "device_memory_series", level):
        if row["memory_bytes"] is not None:
            parts[row["ts"]] = parts.get(row["ts"], 0.0) + row["memory_bytes"]
    assert {ts: parts[ts] for ts in used} == pytest.approx(used, rel=1e-12)
    on_host: dict[Any, float] = {}
    for row in _ask(filled, "host_memory_series", level):
        if row["memory_bytes"] is not None:
            on_host[row["ts"]] = on_host.get(row["ts"], 0.0) + row["memory_bytes"]
    assert on_host
    assert list(on_host.values()) == pytest.approx([80_000] * len(on_host), rel=1e-12)
    mine = [row for row in _ask(filled, "engine_memory_series", level) if row["memory_bytes"] is not None]
    assert {(row["memory_bytes"], row["memory_bytes_max"], row["method"]) for row in mine} == {(3210, 3210, "rss")}


def test_an_hour_without_samples_is_a_gap(filled: Filled, level: str) -> None:
    filled.put(engine(), epoch())
    filled.put(*(sample(second, requests_running=2) for second in (*range(0, 3600, 20), *range(14_400, 18_000, 20))))
    _keep(filled, level)
    if level == "raw":
        Maintenance(filled.writer, SHORT).once(at(18_100))
    rows = _ask(filled, "engine_series", level, end=18_000)
    gaps = [row["ts"] for row in rows if row["requests_running"] is None]
    assert gaps == [at((3580 + 14_400) / 2)]


def test_the_newest_minutes_are_in_a_chart_that_ends_now(filled: Filled) -> None:
    filled.put(engine(), epoch(), device())
    for second in range(0, 18_000, 10):
        filled.writer.put([sample(second, generation_tokens_total=10.0 * second, requests_running=second % 7)])
        filled.writer.put([device_sample(second, memory_used_bytes=1000 + second)])
    filled.writer.flush()
    Maintenance(filled.writer, SHORT).once(at(17_500))
    span = {"start": at(0), "end": at(18_000), "points": 100}
    table = filled.store.query("engine_series", span)
    assert table.schema.metadata[b"level"] == b"minute"
    rows = table.to_pylist()
    assert sum(row["samples"] for row in rows) == 1800
    assert {row["generation_tokens_per_second"] for row in rows} == {10.0}
    newest = filled.store.query("device_series", span).to_pylist()[-1]
    assert newest["memory_used_bytes_max"] == 1000 + 17_990


def test_a_range_that_begins_before_samples_are_kept_shows_its_beginning(filled: Filled) -> None:
    filled.put(engine(), epoch(), *(sample(day * DAY, requests_running=day) for day in range(6)))
    Maintenance(filled.writer, SHORT).once(at(5.1 * DAY))
    rows = filled.store.query("engine_series", {"start": at(-DAY), "end": at(6 * DAY)}).to_pylist()
    assert [row["requests_running"] for row in rows if row["state"] is not None] == [0, 1, 2, 3, 4, 5]
    (kept,) = filled.store.query("extent").to_pylist()
    # As of day 5.1, samples are kept since day 3.1 and minutes since day 2.1.
    assert kept == {
        "oldest_ts": at(0),
        "newest_ts": at(5 * DAY),
        "raw_oldest_ts": at(4 * DAY),
        "minute_oldest_ts": at(3 * DAY),
        "hour_oldest_ts": at(0),
    }


def test_a_range_of_a_century_a_reversed_one_and_one_in_the_future(filled: Filled) -> None:
    filled.put(engine(), epoch(), *(sample(second, requests_running=1) for second in range(0, 7200, 10)))
    Maintenance(filled.writer, SHORT).once(at(7300))
    century = timedelta(days=36_500)
    rows = filled.store.query("engine_series", {"start": at(0) - century, "end": at(0) + century}).to_pylist()
    assert sum(row["samples"] for row in rows) == 720
    for start, end in ((at(3600), at(0)), (at(DAY), at(2 * DAY))):
        for name in ("engine_series", "device_memory_series", "latency_series"):
            assert filled.store.query(name, {"start": start, "end": end}).num_rows == 0


def test_latency_over_time_merges_observations(filled: Filled, level: str) -> None:
    """
    Ten observations below 0.1 s in one snapshot, thirty between 0.1 and 0.5 s in the next, in one hour.

    By hand, over both: rank 20 lies in the second bucket, 0.1 + 0.4 x (20 - 10) / 30; the mean of the medians of
    the two snapshots would be another one.
    """
    filled.put(engine(), epoch(started=-9000, first_seen=at(-1000)))
    filled.put(*histogram(0, {0.1: 100, 0.5: 100, INF: 100}, 5.0))
    filled.put(*histogram(600, {0.1: 110, 0.5: 110, INF: 110}, 5.5))
    filled.put(*histogram(1200, {0.1: 110, 0.5: 140, INF: 140}, 14.5))
    filled.put(*histogram(1260, {0.1: 110, 0.5: 140, INF: 140}, 14.5))
    _keep(filled, level)
    rows = _ask(filled, "latency_series", level)
    told = [row for row in rows if row["count"]]
    assert sum(row["count"] for row in told) == 40
    if level == "hour":
        (row,) = told
        assert row["mean_seconds"] == pytest.approx((14.5 - 5) / 40)
        assert row["p50_seconds"] == pytest.approx(0.1 + 0.4 * (20 - 10) / 30)
        assert (row["p50_low_seconds"], row["p50_high_seconds"]) == (0.1, 0.5)
        assert row["p95_seconds"] == pytest.approx(0.1 + 0.4 * (38 - 10) / 30)
    else:
        assert [row["p50_seconds"] for row in told] == pytest.approx([0.05, 0.3])
        nothing = [row for row in rows if row["count"] == 0]
        assert nothing
        assert all(row["p50_seconds"] is None and row["mean_seconds"] is None for row in nothing)


def test_histograms_with_other_bounds_share_what_both_have(filled: Filled, level: str) -> None:
    """A new version has other buckets: of 0.1 | 0.5 | 1 and 0.2 | 0.5 | 1, bounds 0.5 and 1 are known for both."""
    filled.put(engine(), epoch("a", started=0), epoch("b", started=1000))
    filled.put(*histogram(60, {0.1: 6, 0.5: 10, 1.0: 10, INF: 10}, 2.0, epoch_id="a"))
    filled.put(*histogram(1060, {0.2: 0, 0.5: 0, 1.0: 10, INF: 10}, 8.0, epoch_id="b"))
    _keep(filled, level)
    rows = [row for row in _ask(filled, "latency_series", level) if row["count"]]
    assert sum(row["count"] for row in rows) == 20
    highs = [row["p50_high_seconds"] for row in rows]
    assert highs == ([0.5] if level == "hour" else [0.5, 1.0])


def test_latency_beyond_the_last_bound_has_no_upper_one(filled: Filled) -> None:
    filled.put(engine(), epoch(started=1), *histogram(50, {0.1: 1, 10.0: 2, INF: 10}, 200.0))
    (row,) = filled.store.query(
        "latency_series", {"start": at(0), "end": at(60), "quantity": "ttft_seconds", "engine_id": ENGINE}
    ).to_pylist()
    assert (row["p95_seconds"], row["p95_low_seconds"], row["p95_high_seconds"]) == (10.0, 10.0, None)
    other = {"start": at(0), "end": at(60), "quantity": "itl_seconds"}
    assert filled.store.query("latency_series", other).num_rows == 0
