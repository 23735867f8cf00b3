"""
Latency from histograms: deltas of buckets, merged over epochs, quantiles as Prometheus computes them.

Expected quantiles are worked out by hand with the rule of Prometheus' histogram_quantile:
low + (high - low) * (q * count - below) / (in bucket).
"""

import math
from typing import Any

import pytest

from tests.contract.conftest import Filled
from tests.support.rows import at, engine, epoch, histogram

INF = math.inf


def _latency(filled: Filled, start: float = 0, end: float = 60) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = filled.store.query("latency", {"start": at(start), "end": at(end)}).to_pylist()
    return rows


def test_quantiles_lie_inside_their_buckets(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-1000))
    filled.put(*histogram(-10, {0.1: 100, 0.5: 100, 1.0: 100, INF: 100}, 5.0))
    filled.put(*histogram(50, {0.1: 110, 0.5: 130, 1.0: 140, INF: 140}, 21.0))
    (row,) = _latency(filled)
    assert (row["engine_id"], row["quantity"], row["epochs"], row["count"]) == ("vllm-8000", "ttft_seconds", 1, 40)
    assert row["mean_seconds"] == pytest.approx((21.0 - 5.0) / 40)
    # rank 20 of 40: 10 lie below 0.1, the bucket to 0.5 holds 20.
    assert row["p50_seconds"] == pytest.approx(0.1 + 0.4 * (20 - 10) / 20)
    assert (row["p50_low_seconds"], row["p50_high_seconds"]) == (0.1, 0.5)
    # rank 38: 30 lie below 0.5, the bucket to 1.0 holds 10.
    assert row["p95_seconds"] == pytest.approx(0.5 + 0.5 * (38 - 30) / 10)
    assert row["p99_seconds"] == pytest.approx(0.5 + 0.5 * (39.6 - 30) / 10)


def test_the_first_bucket_begins_at_zero(filled: Filled) -> None:
    filled.put(engine(), epoch(started=1), *histogram(50, {0.2: 10, INF: 10}))
    (row,) = _latency(filled)
    assert row["p50_seconds"] == pytest.approx(0.2 * 5 / 10)
    assert (row["p50_low_seconds"], row["p50_high_seconds"]) == (0, 0.2)
    assert row["mean_seconds"] is None


def test_beyond_the_last_bound_only_the_bound_is_known(filled: Filled) -> None:
    filled.put(engine(), epoch(started=1), *histogram(50, {0.1: 1, 10.0: 2, INF: 10}, 200.0))
    (row,) = _latency(filled)
    assert (row["p95_seconds"], row["p95_low_seconds"], row["p95_high_seconds"]) == (10.0, 10.0, None)


def test_no_observation_in_the_window_is_no_latency(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-1000))
    for second in (-30, 30):
        filled.put(*histogram(second, {0.1: 7, INF: 9}, 3.0))
    (row,) = _latency(filled)
    assert row["count"] == 0
    assert [row[name] for name in row if name.endswith("seconds")] == [None] * 10


def test_a_process_that_started_in_the_window_counts_from_zero(filled: Filled) -> None:
    filled.put(engine(), epoch(started=5), *histogram(20, {0.1: 4, INF: 4}, 0.2))
    assert _latency(filled)[0]["count"] == 4


def test_a_process_that_ran_before_it_was_seen_counts_from_its_first_snapshot(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-5000, first_seen=at(10)))
    filled.put(*histogram(10, {0.1: 1000, INF: 1000}, 50.0), *histogram(40, {0.1: 1006, INF: 1008}, 51.6))
    (row,) = _latency(filled)
    assert row["count"] == 8
    assert row["mean_seconds"] == pytest.approx(1.6 / 8)


def test_an_unknown_process_start_counts_from_its_first_snapshot(filled: Filled) -> None:
    filled.put(engine(), epoch(started=5, started_is_process_start=False))
    filled.put(*histogram(10, {0.1: 1000, INF: 1000}), *histogram(40, {0.1: 1003, INF: 1003}))
    assert _latency(filled)[0]["count"] == 3


def test_24_epochs_are_merged_bucket_by_bucket_not_by_percentile(filled: Filled) -> None:
    # monitoring-dashboard-samples#1188, vllm-htop: percentiles were averaged.
    filled.put(engine(), epoch("e1", started=-1000), epoch("e2", started=30))
    filled.put(*histogram(-5, {0.1: 0, 1.0: 0, INF: 0}, 0.0, epoch_id="e1"))
    filled.put(*histogram(20, {0.1: 90, 1.0: 90, INF: 90}, 4.5, epoch_id="e1"))
    filled.put(*histogram(50, {0.1: 0, 1.0: 10, INF: 10}, 5.0, epoch_id="e2"))
    (row,) = _latency(filled)
    assert (row["epochs"], row["count"]) == (2, 100)
    assert row["mean_seconds"] == pytest.approx(0.095)
    # rank 50 of the 90 below 0.1; rank 95: 90 lie below 0.1, the bucket to 1.0 holds 10.
    assert row["p50_seconds"] == pytest.approx(0.1 * 50 / 90)
    assert row["p95_seconds"] == pytest.approx(0.1 + 0.9 * 5 / 10)


def test_bounds_that_only_one_epoch_has_are_left_out(filled: Filled) -> None:
    # An update of the engine changed the grid: 0.5 is in both, 0.1 and 0.2 in one each.
    filled.put(engine(), epoch("e1", started=1), epoch("e2", started=30))
    filled.put(*histogram(20, {0.1: 5, 0.5: 10, INF: 10}, epoch_id="e1"))
    filled.put(*histogram(50, {0.2: 3, 0.5: 6, INF: 10}, epoch_id="e2"))
    (row,) = _latency(filled)
    # 16 of 20 lie below 0.5.
    assert row["p50_seconds"] == pytest.approx(0.5 * 10 / 16)
    assert (row["p50_low_seconds"], row["p50_high_seconds"]) == (0, 0.5)
    assert (row["p95_low_seconds"], row["p95_high_seconds"]) == (0.5, None)


def test_a_histogram_that_fell_is_left_out(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-1000))
    filled.put(*histogram(-5, {0.1: 500, INF: 500}), *histogram(40, {0.1: 20, INF: 20}))
    assert _latency(filled) == []


def test_the_window_ends_where_it_is_said_to_end(filled: Filled) -> None:
    filled.put(engine(), epoch(started=1))
    for second, count in ((10, 5), (30, 8), (70, 100)):
        filled.put(*histogram(second, {0.1: count, INF: count}))
    assert _latency(filled, 0, 60)[0]["count"] == 8
    assert _latency(filled, 10, 60)[0]["count"] == 3


def test_the_merged_buckets_are_those_that_all_epochs_have(filled: Filled) -> None:
    filled.put(engine(), epoch("e1", started=1), epoch("e2", started=30))
    filled.put(*histogram(20, {0.1: 5, 0.5: 10, INF: 10}, epoch_id="e1"))
    filled.put(*histogram(50, {0.2: 3, 0.5: 6, INF: 10}, epoch_id="e2"))
    rows = filled.store.query("latency_buckets", {"start": at(0), "end": at(60)}).to_pylist()
    assert [(row["le"], row["cumulative_count"]) for row in rows] == [(0.5, 16), (INF, 20)]
