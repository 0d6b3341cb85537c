"""Statistics of timed rounds: the time and the speedup of an arm, with confidence intervals, and when timing may stop.

The functions of this module have no side effects.

The speedup is the median, over the rounds, of the ratio baseline time / arm time *within* a round. Disturbances of a
whole round cancel in the ratio. Disturbances of single calls hit every arm of a randomly ordered round with equal
probability, so the ratio scatters symmetrically around the truth. docs/timing.md compares the median with the mean. No
sample is trimmed for being slow: each round counts by its rank.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kernel_harness.problem.problem import OWN

Floats = NDArray[np.float64]

LOOKS = (16, 32, 64, 128, 256, 512, 1024)
"""Timing may stop only after one of these numbers of rounds (a look)."""

LOOK_SHARE = 4
"""The error rate of an interval is divided by this number, because timing may stop at any of seven looks.

Division by seven (Bonferroni) would be too strict: 99.4% instead of 95% of the intervals would cover the true value,
because the intervals at later looks contain the rounds of earlier looks. With division by four, 96.7% of the simulated
intervals of uncorrelated rounds cover the true value even if timing stops at the least favourable look. If timing stops
at the first look that is precise enough, 96.0 to 99.8% cover it, for correlations of 0 to 0.6 between rounds.
"""

CONFIDENCE = 0.95
HALF_WIDTH = 0.005
MAX_REJECTED_SHARE = 0.05


@dataclass(frozen=True)
class Round:
    """The times of the arms (candidates, baselines, sentinel) in one round, and the order in which they were called.

    `samples_ms` maps the name of each arm to the time of its call, or to the median time of its calls. `rejected` is
    the reason why the whole round does not count, None if it counts. `distribution` names the distribution of the
    round's inputs.

    `brackets_ms` are durations by the judge's clock, medians for an arm with several calls. They contain only arms
    whose sample is a time of the device's clock. A bracket begins when the inputs are written, and ends when the call
    is done and the judge can copy its outputs (`Bracket`). `around_on_host_ms` is the judge's time minus the device's
    time for an additional call of "torch" whose worker awaits the inputs on the host; None if there was no such call.
    `copied` says that the shared memory is the host's, so brackets contain copies of inputs and outputs.

    Raises ValueError for a sample that is zero, negative, NaN or infinite, and for an order that does not contain each
    sampled arm once.
    """

    samples_ms: Mapping[str, float]
    order: tuple[str, ...]
    rejected: str | None = None
    brackets_ms: Mapping[str, float] = field(default_factory=dict)
    distribution: str = OWN
    around_on_host_ms: float | None = None
    copied: bool = False

    def __post_init__(self) -> None:
        for arm, ms in self.samples_ms.items():
            if not (math.isfinite(ms) and ms > 0):
                raise ValueError(f"a time must be positive and finite, {arm!r} has {ms} ms")
        if sorted(self.order) != sorted(self.samples_ms):
            raise ValueError(f"the order {self.order} does not name the sampled arms once each")


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


@dataclass(frozen=True)
class RejectedSample:
    """The time of one arm's call in a rejected round, and the reason why the round was rejected."""

    sample_ms: float
    reason: str


@dataclass(frozen=True)
class Timing:
    """The result of timing one arm: its times in the rounds (samples), its estimated time and its speedup.

    `samples_ms` holds the times in the rounds that count, `rejected` those in rejected rounds. `time` is the time of
    one call, in ms. `speedup` is the baseline's time divided by the arm's time, so a value above 1 means that the arm
    is faster; None if there is no baseline. On a GPU `time.estimate` is the time of the baseline "torch" divided by the
    arm's speedup over "torch", whatever the baseline of `speedup` is. An emulated `time` is the median of `samples_ms`.
    `verified` is False if the judge's clock hardly verifies the device's: `time` is then the longest and `speedup` the
    lowest that the judge's clock leaves possible.
    """

    samples_ms: tuple[float, ...]
    rejected: tuple[RejectedSample, ...]
    time: Interval
    speedup: Interval | None
    verified: bool = True

    @property
    def rounds(self) -> int:
        """Returns the number of rounds in which this arm ran, including rejected rounds."""
        return len(self.samples_ms) + len(self.rejected)

    @property
    def time_ms(self) -> float:
        """Returns the estimated time of one call, in ms."""
        return self.time.estimate

    def at_upper_end(self, verified_to_ms: float) -> Timing:
        """Returns the Timing of a call that may take `verified_to_ms` longer than measured."""
        factor = 1 + verified_to_ms / self.time_ms
        speedup = self.speedup and self.speedup.scaled(1 / factor)
        return replace(self, time=self.time.scaled(factor), speedup=speedup, verified=False)

    @property
    def time_ms_low(self) -> float | None:
        """Returns the lower bound of the time of one call, in ms; None if there are too few rounds for bounds."""
        return self.time.low

    @property
    def time_ms_high(self) -> float | None:
        """Returns the upper bound of the time of one call, in ms; None if there are too few rounds for bounds."""
        return self.time.high


def order_of_round(arms: Collection[str], rng: random.Random) -> tuple[str, ...]:
    """Returns the arms in a new random order, so that no arm runs after one particular other arm in every round."""
    return tuple(rng.sample(sorted(arms), len(arms)))


def reject_rounds(rounds: Sequence[Round], sentinel: str) -> tuple[Round, ...]:
    """Returns all rounds, and marks those as rejected in which the sentinel was disturbed.

    `sentinel` is the name of the sentinel's arm. Its time in a round is compared with its median over the 17 rounds
    around that round, so a slow drift rejects no round. The sentinel was disturbed if its time differs from that median
    by more than six robust standard deviations and by more than 1%. At most 5% of the rounds are rejected, those with
    the largest differences first. Rounds that were already rejected count towards the 5%. The samples of other arms do
    not decide, because rejecting rounds by them would bias the ratios.
    """
    allowance = int(MAX_REJECTED_SHARE * len(rounds)) - sum(r.rejected is not None for r in rounds)
    with_sentinel = [i for i, r in enumerate(rounds) if sentinel in r.samples_ms]
    if allowance <= 0 or len(with_sentinel) < 3:
        return tuple(rounds)
    logs = np.log([rounds[i].samples_ms[sentinel] for i in with_sentinel])
    deviations = logs - _local_median(logs)
    fence = max(6 * 1.4826 * float(np.median(np.abs(deviations))), 0.01)
    marked = list(rounds)
    for position in np.argsort(-np.abs(deviations)):
        index, percent = with_sentinel[position], 100 * math.expm1(deviations[position])
        if allowance == 0 or abs(deviations[position]) <= fence:
            break
        if marked[index].rejected is None:
            marked[index] = replace(marked[index], rejected=f"sentinel off by {percent:+.1f}%")
            allowance -= 1
    return tuple(marked)


def median_interval(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the arrays (low, median, high): the median over the last axis, and the bounds of its confidence interval.

    The interval is that of the sign test. The test uses only the order of the values, so it assumes no distribution of
    the noise. The bounds are the values at the ranks (n+1)/2 -+ t sqrt(n f)/2, interpolated linearly between ranks. The
    smallest value has rank 1. Here n is the number of values, t is a quantile of Student's distribution, and f >= 1
    corrects for values that are correlated with the value before. f is estimated as follows. r is the lag-1
    autocorrelation of the signs of (value - median), corrected for its bias of -(1+3r)/n and limited to 0 to 0.95. By
    the arcsine law, r belongs to an AR(1) series of correlation q = sin(pi r / 2). The sum of the signs of such a
    series has the variance n f, with f = 1 + 4/pi * sum_k arcsin(q^k).
    t is the two-sided quantile for the error rate (1 - CONFIDENCE) / LOOK_SHARE and for n/f - 1 degrees of freedom (at
    least 3), since n/f is the number of independent values. If there are too few values for that error rate, the bounds
    are the smallest and the largest value.
    """
    count = values.shape[-1]
    ordered = np.sort(values, axis=-1)
    centre = np.median(ordered, axis=-1)
    inflation = _inflation(np.sign(values - centre[..., None]))
    quantile = _student((1 - CONFIDENCE) / LOOK_SHARE, np.maximum(count / inflation - 1, 3.0))
    rank = (count + 1) / 2 - quantile * np.sqrt(count * inflation) / 2 - 1
    return _at_rank(ordered, rank), centre, -_at_rank(-ordered[..., ::-1], rank)


def ratio_interval(rounds: Sequence[Round], arm: str, baseline: str) -> Interval:
    """Returns the speedup of `arm`: the median of the ratio baseline time / arm time, with its confidence interval.

    Uses the rounds that were not rejected and that contain both arms. Raises ValueError if there is no such round.
    """
    pairs = [
        (r.samples_ms[baseline], r.samples_ms[arm])
        for r in rounds
        if r.rejected is None and arm in r.samples_ms and baseline in r.samples_ms
    ]
    if not pairs:
        raise ValueError(f"no round holds both {arm!r} and {baseline!r}")
    logs = np.log(np.array(pairs, dtype=np.float64))
    return interval_of(logs[:, 0] - logs[:, 1]).exp()


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


def summarize(
    rounds: Sequence[Round],
    arm: str,
    baseline: str | None,
    *,
    scale: str | None = None,
    scale_ms: float | None = None,
    resolution_ms: float = 0.0,
) -> Timing:
    """Computes the Timing of the arm `arm` from the rounds that count.

    The samples are the arm's times in the rounds that count. The estimated time is not their median. It is the time of
    the arm `scale` divided by the median ratio of the two arms' times. The ratio cancels drift, which the median of the
    samples contains. Times that are computed in this way have the same order as the ratios by which tables are ranked.
    The relative width of the time's interval is that of the arm's own samples, which includes drift.

    `baseline` is the arm that the speedup compares with; None gives no speedup. `scale` defaults to `baseline`; if both
    are None, the time is the median of the arm's samples. `scale_ms` is the time of the arm `scale` in ms: all cohorts
    pass the time from the first cohort, so that their times are comparable. None uses the median of that arm in these
    rounds. `resolution_ms` is the difference between the times of two processes with the same kernel; it widens the
    intervals of the time and of the speedup. Raises ValueError if no round that counts contains the arm, or the arm
    together with `baseline` or with `scale`.
    """
    samples = _accepted(rounds, arm)
    time = interval_of(np.log(samples)).exp()
    speedup = None if baseline is None else ratio_interval(rounds, arm, baseline)
    scale = scale or baseline
    if scale is not None:
        ratio = ratio_interval(rounds, arm, scale).estimate
        unit_ms = float(np.median(_accepted(rounds, scale))) if scale_ms is None else scale_ms
        time = time.scaled(unit_ms / ratio / time.estimate)
    share = resolution_ms / time.estimate
    time, speedup = time.widened(share), speedup and speedup.widened(share)
    rejected = tuple(
        RejectedSample(r.samples_ms[arm], r.rejected) for r in rounds if r.rejected is not None and arm in r.samples_ms
    )
    return Timing(tuple(float(ms) for ms in samples), rejected, time, speedup)


def decided(
    rounds: Sequence[Round],
    arms: Collection[str],
    baseline: str,
    *,
    half_width: float = HALF_WIDTH,
) -> bool:
    """Returns whether the timing of a cohort may stop after `rounds`.

    Timing may stop only after certain numbers of rounds (`LOOKS`). It may stop at the last look. It may stop at an
    earlier look if the half width of the speedup over `baseline` is below `half_width` for all `arms`. The number of
    rounds that decides whether this is a look includes rejected rounds, so rejecting a round cannot move a look. Only
    the precision decides, never the sign of a difference: timing that stops as soon as a difference shows would find
    false differences.
    """
    if len(rounds) >= LOOKS[-1]:
        return True
    if len(rounds) not in LOOKS:
        return False
    counted = [r.samples_ms.keys() for r in rounds if r.rejected is None]
    if not all(any({arm, baseline} <= names for names in counted) for arm in arms):
        return False
    widths = (ratio_interval(rounds, arm, baseline).half_width for arm in arms)
    return all(width is not None and width < half_width for width in widths)


def remaining_ms(resolution_ms: float, processes: int, others: int) -> float:
    """Returns the difference in ms that two arms with the same kernel show by chance after averaging over processes.

    `resolution_ms` is that difference if each arm has one worker process. `processes` and `others` are the numbers of
    worker processes of the two arms.
    """
    return resolution_ms * math.sqrt((1 / processes + 1 / others) / 2)


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


def _accepted(rounds: Sequence[Round], arm: str) -> Floats:
    samples = [r.samples_ms[arm] for r in rounds if r.rejected is None and arm in r.samples_ms]
    if not samples:
        raise ValueError(f"no counted round holds {arm!r}")
    return np.array(samples, dtype=np.float64)


def interval_of(values: Floats) -> Interval:
    """Returns the confidence interval of the median of the values.

    The interval has no bounds if even the range of the values covers the true median with less than the probability
    1 - (1 - CONFIDENCE) / LOOK_SHARE. That is so for fewer than 8 values.
    """
    low, centre, high = (float(value) for value in median_interval(values))
    range_misses = 2.0 ** (1 - len(values))
    if range_misses > (1 - CONFIDENCE) / LOOK_SHARE:
        return Interval(None, centre, None)
    return Interval(low, centre, high)


def _local_median(values: Floats, reach: int = 8) -> Floats:
    """Returns for each value the median of the value and its `reach` neighbours on either side. Edges are mirrored."""
    reach = min(reach, len(values) - 1)
    padded = np.pad(values, reach, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    return np.asarray(np.median(windows, axis=-1), dtype=np.float64)


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
