"""
Differences and ratios with intervals.

Expected values come from scipy's own tests (`scipy.stats.ttest_ind`, `ttest_1samp`), from calculations by hand that
stand in the test, and from simulations whose true value is known.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from comparison.intervals import blocks, difference, effective_number, mean_interval, quotient, ratio, repeats

figures = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=8)


@given(figures, figures)
def test_a_difference_is_welchs_interval(first, second):
    assume(np.std(first) + np.std(second) > 1e-6 * max(*first, *second))
    found = difference(repeats(first), repeats(second))
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    assert found.estimate == pytest.approx(np.mean(second) - np.mean(first), abs=1e-6 * max(*first, *second))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)
    assert found.n == (len(first), len(second))


@given(figures)
def test_a_mean_is_students_interval(values):
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    found = mean_interval(repeats(values))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_a_ratio_of_three_repeats_by_hand():
    """
    Means 100 and 150, standard deviations 1 and 3, so relative standard errors 1/100/sqrt(3) and 3/150/sqrt(3).

    The variance of the log ratio is (0.01^2 + 0.02^2) / 3 = 1.667e-4; Welch-Satterthwaite: shares 0.2 and 0.8 of it
    with 2 degrees each, 1 / (0.04/2 + 0.64/2) = 2.941; t(0.975, 2.941) = 3.220 (scipy.stats.t).
    """
    found = ratio(repeats([99, 100, 101]), repeats([147, 150, 153]))
    half = stats.t.ppf(0.975, 1 / (0.2**2 / 2 + 0.8**2 / 2)) * math.sqrt(5e-4 / 3)
    assert half == pytest.approx(3.220 * 0.012910, rel=1e-3)
    assert found.estimate == pytest.approx(1.5)
    assert (found.low, found.high) == pytest.approx((1.5 * math.exp(-half), 1.5 * math.exp(half)))
    assert found.method == "t interval of the log ratio, 3 repeats each"


@given(figures, figures, st.floats(1e-3, 1e3))
def test_a_ratio_turned_round_is_the_reciprocal_and_has_no_unit(first, second, scale):
    there, back = ratio(repeats(first), repeats(second)), ratio(repeats(second), repeats(first))
    scaled = ratio(repeats([scale * value for value in first]), repeats([scale * value for value in second]))
    assert there.has_interval == back.has_interval == scaled.has_interval
    if there.has_interval:
        assert 0 < there.low <= there.estimate <= there.high
        assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high), rel=1e-9)
        assert (scaled.low, scaled.high) == pytest.approx((there.low, there.high), rel=1e-6)


def test_repeats_that_hardly_scatter_have_the_interval_of_their_logarithms():
    """With relative errors of a percent the log of a mean and the mean of logs are the same to the third digit."""
    first, second = [100.0, 101.0, 99.5], [205.0, 203.0, 206.5]
    found = ratio(repeats(first), repeats(second))
    logs = stats.ttest_ind(np.log(second), np.log(first), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(logs.low), math.exp(logs.high)), rel=1e-3)


@pytest.mark.parametrize(
    ("first", "second", "estimate", "reason"),
    [
        ([], [1.0, 2.0], None, "no repeat has this figure"),
        ([100.0], [101.0, 102.0], 1.015, "one repeat does not tell"),
        ([0.0, 0.0], [1.0, 2.0], None, "the baseline is 0"),
        ([1.0, 2.0], [0.0, 0.0], 0.0, "the figure is 0"),
        ([-1.0, -2.0], [1.0, 2.0], None, "not negative"),
        ([5.0, 5.0, 5.0], [7.0, 7.0, 7.0], 1.4, "all alike"),
        # mean 100, standard error 90: t(1) = 12.7 of them reach far beyond 0.
        ([10.0, 190.0], [99.0, 101.0], 1.0, "can't be told from 0"),
    ],
)
def test_where_a_ratio_has_no_interval_it_says_why(first, second, estimate, reason):
    found = ratio(repeats(first), repeats(second))
    assert found.estimate == (pytest.approx(estimate) if estimate is not None else None)
    assert not found.has_interval
    assert reason in found.reason


def test_a_repeat_that_is_not_measurable_is_not_counted_as_zero():
    assert repeats([None, 3.0, math.nan, 5.0]) == repeats([3.0, 5.0])
    assert repeats([3.0, 5.0]).mean == 4.0


def test_one_side_without_scatter_leaves_the_interval_to_the_other():
    """Welch with one standard error of 0 is Student's interval of the other side, moved."""
    found = difference(repeats([10.0, 10.0, 10.0]), repeats([12.0, 13.0, 14.0]))
    expected = stats.ttest_1samp([2.0, 3.0, 4.0], 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def _series(rng: np.random.Generator, n: int, correlation: float, mean: float, spread: float) -> np.ndarray:
    """An AR(1) series whose neighbours have this correlation."""
    steps = rng.normal(size=n) * math.sqrt(1 - correlation**2)
    series = np.empty(n)
    series[0] = rng.normal()
    for place in range(1, n):
        series[place] = correlation * series[place - 1] + steps[place]
    return mean + spread * series


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_series_of_alike_neighbours_is_not_taken_for_independent_samples(correlation):
    """
    Two series whose true ratio is 1.2, 600 times. Taking each value for independent would cover the truth in about
    95, 75 and 35 % of the cases; what is promised is 95 %, and a little more is no harm.
    """
    rng = np.random.default_rng(20261201)
    found = [
        ratio(blocks(_series(rng, 400, correlation, 100, 10), 2), blocks(_series(rng, 400, correlation, 120, 12), 2))
        for _ in range(600)
    ]
    given_intervals = [item for item in found if item.has_interval]
    covered = sum(item.low <= 1.2 <= item.high for item in given_intervals) / len(given_intervals)
    assert len(given_intervals) > 540
    assert 0.93 <= covered <= 0.995


def test_independent_blocks_have_students_interval_of_their_means():
    """20 blocks of 10 values, whose means go up and down in turn and do not drift."""
    means = np.array([100 + 3 * (-1) ** place for place in range(20)], dtype=float)
    sample = blocks(np.repeat(means, 10), 2)
    # 20 means of 97 and 103: their standard deviation is 3 sqrt(20 / 19), over sqrt(20) of them.
    assert sample.standard_error == pytest.approx(3 / math.sqrt(19))
    assert (sample.mean, sample.n, sample.degrees) == (100.0, 20, 19.0)
    assert sample.basis == "20 blocks of 20 s"


def test_a_series_that_drifts_has_no_interval():
    sample = blocks(np.linspace(100, 200, 400), 10)
    assert sample.mean == pytest.approx(150)
    assert sample.standard_error is None
    assert "drifted" in sample.reason


def test_the_exact_mean_of_the_window_stays_the_estimate():
    rng = np.random.default_rng(7)
    values = _series(rng, 200, 0.0, 100, 5)
    assert blocks(values, 2, mean=98.5).mean == 98.5
    assert blocks(values, 2, mean=98.5).standard_error == blocks(values, 2).standard_error


def test_gaps_are_left_out_and_few_samples_are_not_enough():
    rng = np.random.default_rng(7)
    values = list(_series(rng, 400, 0.0, 100, 5))
    with_gap = [None if 100 <= place < 150 else value for place, value in enumerate(values)]
    sample = blocks(with_gap, 2)
    assert sample.n == 18  # 20 blocks of 20: two of them lie in the gap, the one of 140 to 160 is half there
    assert sample.mean == pytest.approx(np.mean([value for value in with_gap if value is not None]))
    assert blocks(values[:49], 2).reason == "49 samples are too few, at least 50 are needed"
    assert "gaps leave" in blocks([value if place < 180 else None for place, value in enumerate(values)], 2).reason
    assert blocks([None, None], 2).reason == "no sample has this figure"


def test_the_effective_number_of_an_alternating_series_is_its_length():
    assert effective_number([1.0, -1.0] * 10) == 20
    assert effective_number([5.0] * 20) == 20


def test_a_quotient_of_totals_weighs_by_the_denominator():
    # 10 requests of 0.2 s in even moments, 30 of 0.4 s in odd ones: (10 x 0.2 + 30 x 0.4) / 40 = 0.35 s.
    counts = [10.0, 30.0] * 100
    seconds = [2.0, 12.0] * 100
    sample = quotient(seconds, counts, 10)
    assert sample.mean == pytest.approx(0.35)
    assert quotient([None, *seconds], [5.0, *counts], 10).mean == pytest.approx(0.35)
    assert quotient([0.0], [0.0], 10).reason == "nothing was observed"


def test_the_interval_of_a_quotient_covers_the_truth():
    """Latencies of mean 0.3 s, as many requests in each moment as chance gives: 95 % of 500 intervals hold 0.3 s."""
    rng = np.random.default_rng(20261202)
    covered = 0
    for _ in range(500):
        counts = rng.poisson(6, size=200)
        seconds = [float(rng.exponential(0.3, size=count).sum()) for count in counts]
        found = mean_interval(quotient(seconds, counts.tolist(), 2))
        covered += found.low <= 0.3 <= found.high
    assert 0.92 <= covered / 500 <= 0.99
