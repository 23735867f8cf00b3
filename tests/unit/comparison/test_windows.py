"""Figures of two windows. Expected values are calculated in the tests."""

from __future__ import annotations

import pytest

from comparison.intervals import repeats
from comparison.windows import Figure, compare, missing


def test_means_of_repeats_are_compared_by_their_scatter():
    first = Figure(100.0, "client", sample=repeats([99.0, 100.0, 101.0]))
    second = Figure(150.0, "client", sample=repeats([147.0, 150.0, 153.0]))
    found = compare(first, second)
    assert (found.difference.estimate, found.ratio.estimate) == (50.0, 1.5)
    assert found.direction == "more"
    assert compare(second, first).direction == "less"
    assert compare(first, first).direction == "undecided"


def test_percentiles_of_histograms_differ_by_what_their_buckets_allow():
    # 0.2 s in (0.1, 0.25] against 0.9 s in (0.75, 1]: at least 0.75 / 0.25 = 3, at most 1 / 0.1 = 10 times.
    found = compare(Figure(0.2, "p50", low=0.1, high=0.25), Figure(0.9, "p50", low=0.75, high=1.0))
    assert found.ratio.estimate == pytest.approx(4.5)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((3.0, 10.0))
    assert (found.difference.low, found.difference.high) == pytest.approx((0.5, 0.9))
    assert found.ratio.confidence is None
    assert found.direction == "more"


def test_two_percentiles_in_one_bucket_are_not_told_apart():
    found = compare(Figure(0.12, "p50", low=0.1, high=0.25), Figure(0.24, "p50", low=0.1, high=0.25))
    assert found.direction == "undecided"
    assert found.ratio.estimate == pytest.approx(2.0)


def test_buckets_without_a_bound_leave_the_interval_open():
    first, beyond = Figure(0.2, "p99", low=0.1, high=0.25), Figure(10.0, "p99", low=10.0, high=None)
    assert "no upper bound" in compare(first, beyond).ratio.reason
    at_zero = compare(Figure(0.01, "p50", low=0.0, high=0.02), Figure(0.03, "p50", low=0.02, high=0.04))
    assert "begins at 0" in at_zero.ratio.reason
    # The difference is bounded all the same: 0.02 - 0.02 to 0.04 - 0.
    assert (at_zero.difference.low, at_zero.difference.high) == pytest.approx((0.0, 0.04))


def test_a_total_has_a_ratio_and_no_interval():
    found = compare(Figure(200.0, "counter"), Figure(300.0, "counter"))
    assert found.ratio.estimate == 1.5
    assert "one figure of the whole window" in found.ratio.reason
    assert found.direction is None


def test_what_is_missing_or_not_comparable_is_not_compared():
    there = Figure(1.0, "counter")
    assert compare(there, missing("not offered by llama.cpp", "it has no such histogram")) is None
    assert compare(there, Figure(2.0, "counter", flag="shared", caution="The GPU was shared.")) is None
