"""
Differences and ratios of two sides, each with a 95 % confidence interval or the reason why there is none.

A side is a `Sample`: a mean with its standard error and degrees of freedom. Where these come from differs.

- `repeats`: one figure for each repeat of a run. Repeats are independent by design, so the standard error is
  s / sqrt(n) with n - 1 degrees of freedom (Student). Single requests of one run are not repeats: they share
  what made that run fast or slow.
- `blocks`: a time series, whose neighbouring values are alike, so that their number says little. It is cut into
  10 to 20 blocks and one mean a block counts (batch means; Schmeiser, "Batch size effects in the analysis of
  simulation output", Operations Research 30, 1982: 10 to 30 batches). Where even the blocks follow each other, they
  count for n (1 - r) / (1 + r) of them, r being their lag-1 correlation (Bayley and Hammersley, "The effective
  number of independent observations in an autocorrelated time series", JRSS Supplement 8, 1946).
  What changes more slowly than the window can't be seen in it: the interval is about this window, not other days.

A difference gets Welch's interval: the two sides need not scatter alike. A ratio is that of the two means; its
interval is made on its logarithm, whose variance is the sum of the squared relative standard errors (the log response
ratio of Hedges, Gurevitch and Curtis, Ecology 80, 1999), with Welch-Satterthwaite's degrees of freedom and Student's t
in place of the normal quantile because there are few figures. So it is never negative, and the ratio the other way
round has the reciprocal bounds. Where a side's own mean can't be told from 0, a ratio can be anything (Fieller, "Some
problems in interval estimation", JRSS B 16, 1954), and no interval is given. A bootstrap is not used: with 3 repeats
there are only 10 different resamples of a side, and its intervals are then far too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
FEWEST_BLOCKS, MOST_BLOCKS = 10, 20
FEWEST_SERIES_VALUES = 50  # five in each of the fewest blocks
FEWEST_EFFECTIVE = 3.0  # independent figures below which a t interval says nothing a person could use


@dataclass(frozen=True, slots=True)
class Sample:
    """One side: its mean, how sure that is, and how many figures it rests on, in the unit of the values."""

    mean: float | None  # None: no figure at all
    standard_error: float | None  # of the mean; None: not known, and `reason` says why
    degrees: float  # of freedom of the standard error
    n: int  # repeats or blocks
    basis: str  # "3 repeats", "20 blocks of 15 s"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate and its confidence interval, or the reason why there is no interval or no estimate."""

    estimate: float | None
    low: float | None
    high: float | None
    confidence: float | None  # of the interval, 0..1; None: bounds that are no matter of chance
    method: str  # how the interval was made, and on what it rests
    n: tuple[int, ...]  # figures of each side
    reason: str | None = None  # why `low` and `high` are None

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return self.low is not None and self.high is not None


def repeats(values: Sequence[float | None]) -> Sample:
    """
    A sample of independent repeats, one figure each. None and NaN (not measurable) are left out and not counted.

    Without a standard error where fewer than 2 repeats have the figure.
    """
    known = _known(values)
    n = len(known)
    basis = f"{n} repeat" if n == 1 else f"{n} repeats"
    if n == 0:
        return Sample(None, None, 0.0, 0, basis, "no repeat has this figure")
    mean = float(np.mean(known))
    if n == 1:
        return Sample(mean, None, 0.0, 1, basis, "one repeat does not tell how much repeats scatter")
    return Sample(mean, float(np.std(known, ddof=1)) / math.sqrt(n), n - 1.0, n, basis)


def blocks(values: Sequence[float | None], step_seconds: float, mean: float | None = None) -> Sample:
    """
    A sample of a time series: `values` in order, `step_seconds` apart, None or NaN where nothing is known.

    `mean` is the exact mean of the window where that is known better than from the series (a total over elapsed
    time); the series then only tells how sure it is. A block of which less than half is known is left out. There is no
    standard error for fewer than 50 known values, fewer than 10 blocks, or a series that drifts so much that its
    blocks count for fewer than 3 independent figures.
    """
    series = np.array([math.nan if value is None else float(value) for value in values], dtype=float)
    known = series[np.isfinite(series)]
    if len(known) == 0:
        return Sample(mean, None, 0.0, 0, "no samples", "no sample has this figure")
    centre = float(np.mean(known)) if mean is None else mean
    if len(known) < FEWEST_SERIES_VALUES:
        basis = f"{len(known)} samples"
        return Sample(
            centre, None, 0.0, 0, basis, f"{len(known)} samples are too few, at least {FEWEST_SERIES_VALUES} are needed"
        )
    pieces = np.array_split(series, min(MOST_BLOCKS, len(series) // 5))
    whole = [piece[np.isfinite(piece)] for piece in pieces if np.isfinite(piece).mean() >= 0.5]
    block_means = np.array([piece.mean() for piece in whole])
    n = len(block_means)
    basis = f"{n} blocks of {_words(step_seconds * len(series) / len(pieces))}"
    if n < FEWEST_BLOCKS:
        return Sample(centre, None, 0.0, n, basis, f"gaps leave {n} blocks, at least {FEWEST_BLOCKS} are needed")
    effective = effective_number(block_means)
    if effective < FEWEST_EFFECTIVE:
        return Sample(
            centre,
            None,
            0.0,
            n,
            basis,
            f"it drifted through the window: its {basis} follow each other and count for fewer than "
            f"{FEWEST_EFFECTIVE:g} independent figures",
        )
    squares = float(np.sum((block_means - block_means.mean()) ** 2))
    if effective < n - 0.5:
        basis += f", which count for {effective:.0f}"
    # With n independent blocks this is s / sqrt(n); Bayley and Hammersley's variance of the mean otherwise.
    return Sample(centre, math.sqrt(squares / (n * (effective - 1))), effective - 1, n, basis)


def quotient(numerators: Sequence[float | None], denominators: Sequence[float | None], step_seconds: float) -> Sample:
    """
    A sample of the quotient of two totals over time, such as seconds of latency over requests; both in order.

    Its scatter is that of the series R + (a - R b) / mean(b), R being the quotient of the totals: the linearised ratio
    estimator (Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.3), over blocks like any other series.
    """
    pairs = [
        (float(a), float(b)) if a is not None and b is not None and math.isfinite(a) and math.isfinite(b) else None
        for a, b in zip(numerators, denominators, strict=True)
    ]
    known = [pair for pair in pairs if pair is not None]
    below = sum(b for _, b in known)
    if below == 0:
        return Sample(None, None, 0.0, 0, "no samples", "nothing was observed")
    whole, usual = sum(a for a, _ in known) / below, below / len(known)
    series = [whole + (pair[0] - whole * pair[1]) / usual if pair is not None else None for pair in pairs]
    return blocks(series, step_seconds, whole)


def effective_number(values: Sequence[float] | np.ndarray) -> float:
    """
    How many independent figures a series counts for: n (1 - r) / (1 + r), between 0 and n.

    r is the lag-1 correlation, corrected for its bias in short series, E[r] = rho - (1 + 3 rho) / n (Marriott and
    Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954), and at least 0.
    """
    series = np.asarray(values, dtype=float)
    n = len(series)
    apart = series - series.mean()
    squares = float(np.sum(apart**2))
    if n < 4 or squares <= n * (1e-9 * abs(float(series.mean()))) ** 2:
        return float(n)  # all alike up to rounding: nothing drifts
    correlation = float(np.sum(apart[1:] * apart[:-1])) / squares
    corrected = min(max((correlation + 1 / n) / (1 - 3 / n), 0.0), 0.999)
    return n * (1 - corrected) / (1 + corrected)


def mean_interval(sample: Sample, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of one side with Student's interval."""
    method = f"t interval over {sample.basis}"
    error = sample.standard_error
    if sample.mean is None or error is None:
        return Estimate(sample.mean, None, None, confidence, method, (sample.n,), sample.reason)
    half = _quantile(confidence, sample.degrees) * error
    return Estimate(sample.mean, sample.mean - half, sample.mean + half, confidence, method, (sample.n,))


def difference(baseline: Sample, other: Sample, confidence: float = CONFIDENCE) -> Estimate:
    """Other less baseline, in the unit of the values, with Welch's interval."""
    n, method = (baseline.n, other.n), _method("Welch's t interval", baseline, other)
    if baseline.mean is None or other.mean is None:
        return Estimate(None, None, None, confidence, method, n, _missing(baseline, other))
    estimate = other.mean - baseline.mean
    if (reason := _no_interval(baseline, other)) is not None:
        return Estimate(estimate, None, None, confidence, method, n, reason)
    half = _half(baseline.standard_error or 0.0, other.standard_error or 0.0, baseline, other, confidence)
    return Estimate(estimate, estimate - half, estimate + half, confidence, method, n)


def ratio(baseline: Sample, other: Sample, confidence: float = CONFIDENCE) -> Estimate:
    """Other over baseline, with an interval on its logarithm; for figures that are never negative."""
    n, method = (baseline.n, other.n), _method("t interval of the log ratio", baseline, other)
    if baseline.mean is None or other.mean is None:
        return Estimate(None, None, None, confidence, method, n, _missing(baseline, other))
    if baseline.mean == 0:
        return Estimate(None, None, None, confidence, method, n, "the baseline is 0, so there is no ratio to it")
    if baseline.mean < 0 or other.mean < 0:
        return Estimate(None, None, None, confidence, method, n, "a ratio needs figures that are not negative")
    estimate = other.mean / baseline.mean
    if other.mean == 0:
        return Estimate(estimate, None, None, confidence, method, n, "the figure is 0, so its ratio has no interval")
    if (reason := _no_interval(baseline, other)) is not None:
        return Estimate(estimate, None, None, confidence, method, n, reason)
    relative = (baseline.standard_error or 0.0) / baseline.mean, (other.standard_error or 0.0) / other.mean
    for side, error in zip((baseline, other), relative, strict=True):
        if error > 0 and error * _quantile(confidence, side.degrees) >= 1:
            reason = f"the figures of {side.basis} scatter so much that their mean can't be told from 0"
            return Estimate(estimate, None, None, confidence, method, n, reason)
    factor = math.exp(_half(relative[0], relative[1], baseline, other, confidence))
    return Estimate(estimate, estimate / factor, estimate * factor, confidence, method, n)


def _half(error: float, other_error: float, baseline: Sample, other: Sample, confidence: float) -> float:
    """Half the width of the interval from the two standard errors, with Welch-Satterthwaite's degrees of freedom."""
    first, second = error**2, other_error**2
    both = first + second
    # Shares of the variance, so that tiny errors don't vanish when they are squared once more.
    shares = (first / both, second / both)
    degrees = 1 / sum(share**2 / side.degrees for share, side in zip(shares, (baseline, other), strict=True))
    return _quantile(confidence, degrees) * math.sqrt(both)


def _quantile(confidence: float, degrees: float) -> float:
    # what `scipy.stats.t.ppf` calls; importing all of `scipy.stats` would take every process most of a second
    return float(special.stdtrit(degrees, (1 + confidence) / 2))


def _known(values: Sequence[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def _method(name: str, baseline: Sample, other: Sample) -> str:
    if baseline.basis == other.basis:
        return f"{name}, {baseline.basis} each"
    return f"{name}, {baseline.basis} against {other.basis}"


def _missing(baseline: Sample, other: Sample) -> str:
    side, name = (baseline, "the baseline") if baseline.mean is None else (other, "this side")
    return f"{name} has no figure: {side.reason}"


def _no_interval(baseline: Sample, other: Sample) -> str | None:
    """Why two means have no interval between them; None: they have one."""
    for side, name in ((baseline, "the baseline"), (other, "this side")):
        if side.standard_error is None:
            return f"{name}: {side.reason}"
    errors = (baseline.standard_error or 0.0, other.standard_error or 0.0)
    scale = max(abs(baseline.mean or 0.0), abs(other.mean or 0.0))
    if max(errors) <= 1e-12 * scale:
        return "the figures of each side are all alike, so that they don't tell how much they scatter"
    return None


def _words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
