"""Confidence intervals of medians, and what they say of a speedup. The functions have no side effects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ANALYSES_SHARE = 4
"""The error rate of an interval is divided by this number, because timing may stop after any of seven analyses.

Division by seven (Bonferroni) would be too strict: 99.4% instead of 95% of the intervals would cover the true value,
because later interim analyses contain the rounds of earlier ones. With division by four, 96.7% of the simulated
intervals of uncorrelated rounds cover the true value even if timing stops at the least favourable analysis. If timing
stops at the first one that is precise enough, 96.0 to 99.8% cover it, for correlations of 0 to 0.6 between rounds.
"""

CONFIDENCE = 0.95
HALF_WIDTH = 0.005


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds of its confidence interval. Both bounds are None if there are too few rounds."""

    low: float | None
    estimate: float
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Returns half the natural logarithm of `high` / `low`; None if there are no bounds.

        For a narrow interval, this is half its relative width: 0.005 is half a percent.
        """
        if self.low is None or self.high is None:
            return None
        return math.log(self.high / self.low) / 2

    def scaled(self, factor: float) -> Interval:
        """Returns the interval with its estimate and its bounds multiplied by `factor`."""
        return self._map(lambda value: value * factor)

    @property
    def inverse(self) -> Interval:
        """The interval of 1 / x for this interval of x."""
        low, high = (None if bound is None else 1 / bound for bound in (self.low, self.high))
        return Interval(high, 1 / self.estimate, low)

    def widened(self, share: float) -> Interval:
        """Returns a wider interval, for an error that more rounds do not reduce.

        The upper bound is multiplied, and the lower bound divided, by 1 + `share`.
        """
        low, high = self.low, self.high
        return Interval(low and low / (1 + share), self.estimate, high and high * (1 + share))

    def exp(self) -> Interval:
        """Returns the interval of exp(x) for this interval of x. It turns logarithms into ratios or milliseconds."""
        return self._map(math.exp)

    def _map(self, function: Callable[[float], float]) -> Interval:
        low, high = (None if bound is None else function(bound) for bound in (self.low, self.high))
        return Interval(low, function(self.estimate), high)


class Comparison(StrEnum):
    """Whether an arm is faster or slower than its baseline. The confidence interval of the speedup decides."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


def median_interval(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the arrays (low, median, high): the median over the last axis, and the bounds of its confidence interval.

    The interval is that of the sign test. The test uses only the order of the values, so it assumes no distribution of
    the noise. The bounds are the values at the ranks (n+1)/2 -+ t sqrt(n f)/2, interpolated linearly between ranks. The
    smallest value has rank 1. Here n is the number of values, t is a quantile of Student's distribution, and f >= 1
    corrects for values that are correlated with the value before. f is estimated as follows. r is the lag-1
    autocorrelation of the signs of (value - median), corrected for its bias of -(1+3r)/n and limited to 0 to 0.95. By
    the arcsine law, r belongs to an AR(1) series of correlation q = sin(pi r / 2). The sum of the signs of such a
    series has the variance n f, with f = 1 + 4/pi * sum_k arcsin(q^k).
    t is the two-sided quantile for the error rate (1 - CONFIDENCE) / ANALYSES_SHARE and for n/f - 1 degrees of
    freedom (at least 3), since n/f is the number of independent values. If there are too few values for that error
    rate, the bounds are the smallest and the largest value.
    """
    count = values.shape[-1]
    ordered = np.sort(values, axis=-1)
    centre = np.median(ordered, axis=-1)
    inflation = _inflation(np.sign(values - centre[..., None]))
    quantile = _student((1 - CONFIDENCE) / ANALYSES_SHARE, np.maximum(count / inflation - 1, 3.0))
    rank = (count + 1) / 2 - quantile * np.sqrt(count * inflation) / 2 - 1
    return _at_rank(ordered, rank), centre, -_at_rank(-ordered[..., ::-1], rank)


def interval_of(values: Floats) -> Interval:
    """Returns the confidence interval of the median of the values.

    The interval has no bounds if even the range of the values covers the true median with less than the probability
    1 - (1 - CONFIDENCE) / ANALYSES_SHARE. That is so for fewer than 8 values.
    """
    low, centre, high = (float(value) for value in median_interval(values))
    range_misses = 2.0 ** (1 - len(values))
    if range_misses > (1 - CONFIDENCE) / ANALYSES_SHARE:
        return Interval(None, centre, None)
    return Interval(low, centre, high)


def through_baseline(new: Interval, old: Interval) -> Interval:
    """Returns how many times faster one arm is than another, from their speedups over the same baseline.

    `new` is the speedup of the first arm and `old` that of the second. They were measured in separate runs, so their
    errors are independent. The distance of each bound to the estimate, as a logarithm, is the root of the sum of the
    squares of the two distances (MOVER; Zou and Donner 2008, doi:10.1002/sim.3095). The result has no bounds if `new`
    or `old` has none.
    """
    ratio = new.estimate / old.estimate
    if new.low is None or new.high is None or old.low is None or old.high is None:
        return Interval(None, ratio, None)
    down = math.hypot(math.log(new.estimate / new.low), math.log(old.high / old.estimate))
    up = math.hypot(math.log(new.high / new.estimate), math.log(old.estimate / old.low))
    return Interval(ratio * math.exp(-down), ratio, ratio * math.exp(up))


def geometric_mean(found: Sequence[Interval]) -> Interval:
    """Returns the geometric mean of speedups, or of times, that were measured one after the other.

    Their errors are independent. The distance of each bound to the estimate, as a logarithm, is the root of the sum of
    the squares of their n distances, divided by n: the method of variance estimates recovery (MOVER) for a linear
    function of parameters (Zou and Donner 2008, doi:10.1002/sim.3095), here of logarithms. The result has no bounds if
    one of them has none. One interval is returned as it is. Raises statistics.StatisticsError for none.
    """
    if len(found) == 1:
        return found[0]
    mean = fmean(math.log(each.estimate) for each in found)

    def bound(ends: Sequence[float | None], sign: int) -> float | None:
        distances = [math.log(end / each.estimate) for end, each in zip(ends, found, strict=True) if end is not None]
        return mean + sign * math.hypot(*distances) / len(found) if len(distances) == len(found) else None

    return Interval(bound([each.low for each in found], -1), mean, bound([each.high for each in found], 1)).exp()


def compare(interval: Interval, margin: float = HALF_WIDTH) -> Comparison:
    """Compares an arm with its baseline by the interval of its speedup.

    Returns SAME if the whole interval is within the relative distance `margin` of 1. Otherwise returns FASTER or SLOWER
    if the interval excludes 1, and UNDECIDED if it contains 1 or has no bounds.
    """
    if interval.low is None or interval.high is None:
        return Comparison.UNDECIDED
    if interval.low >= 1 / (1 + margin) and interval.high <= 1 + margin:
        return Comparison.SAME
    if interval.low > 1:
        return Comparison.FASTER
    return Comparison.SLOWER if interval.high < 1 else Comparison.UNDECIDED


def _inflation(signs: Floats) -> Floats:
    """Returns how many correlated values carry as much information about the median as one independent value.

    `signs` holds the signs of (value - median). The docstring of `median_interval` gives the formula and calls the
    result f.
    """
    count = signs.shape[-1]
    raw = (signs[..., 1:] * signs[..., :-1]).sum(axis=-1) / count
    correlation = np.clip(raw + (1 + 3 * np.clip(raw, 0, 1)) / count, 0, 0.95)
    latent = np.sin(np.pi / 2 * correlation)[..., None] ** np.arange(1, 65)
    return np.asarray(1 + 4 / np.pi * np.arcsin(latent).sum(axis=-1), dtype=np.float64)


def _student(error: float, freedom: Floats) -> Floats:
    """Returns the two-sided quantile of Student's distribution for the rate `error` and `freedom` degrees of freedom.

    The formula is the Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5).
    """
    z = NormalDist().inv_cdf(1 - error / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return np.asarray(z + first / freedom + second / freedom**2 + third / freedom**3, dtype=np.float64)


def _at_rank(ordered: Floats, rank: Floats) -> Floats:
    """Returns the value at a fractional rank of the sorted values `ordered`, by linear interpolation.

    The smallest value has rank 0. A rank below 0 gives the smallest value, and a rank beyond the end the largest.
    """
    rank = np.clip(rank, 0, ordered.shape[-1] - 1)
    below = np.floor(rank).astype(np.intp)
    above = np.minimum(below + 1, ordered.shape[-1] - 1)
    low = np.take_along_axis(ordered, below[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(ordered, above[..., None], axis=-1)[..., 0]
    return np.asarray(low + (rank - below) * (high - low), dtype=np.float64)
