"""From samples to a Timing, and the schedule of rounds that makes the samples comparable.

Pure functions of numbers: clocks, devices, processes and budgets live elsewhere.

The statistic is the median over rounds of the ratio baseline / arm *within* a round. Whatever slows a
whole round (clock drift, heat, a neighbour) cancels in the ratio; whatever hits single calls (preemption,
an interrupt) hits every arm of a randomly ordered round alike, so the ratio scatters symmetrically around
the truth and its median is unbiased. The mean would be, too, but one call preempted for 4 ms outweighs a
hundred rounds: timing a 1.6 ms call against itself on two CPU cores, the mean of 64 rounds scattered 1.7
times as much as the median when the machine was quiet and 24 times as much when every core was loaded. No
sample is trimmed for being slow: each round counts, by its rank.
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

Floats = NDArray[np.float64]

LOOKS = (32, 64, 128, 256, 512, 1024)
"""Rounds after which the precision reached is looked at; between them nothing is decided."""

LOOK_SHARE = 4
"""What a single interval's error rate is divided by to pay for six looks.

Six (Bonferroni) would cover 99.4% for 95: the looks are nested, so their errors overlap. Four keeps the
promise for uncorrelated rounds even if somebody stops at the least favourable look: 96.8% simulated. Stopped
at the first look that is precise enough, 96.8 to 99.5% cover at correlations of 0 to 0.6.
"""

CONFIDENCE = 0.95
HALF_WIDTH = 0.005
MAX_REJECTED_SHARE = 0.05


@dataclass(frozen=True)
class Round:
    """One call of every arm (candidates, baselines, sentinel), in the order in which they ran.

    `rejected` is the reason why the whole round does not count, None where it does. `brackets_ms` is the judge's
    clock for the same calls, where the samples are the device's own.
    Raises ValueError for a sample that cannot be a time (zero, negative, NaN, infinite).
    """

    samples_ms: Mapping[str, float]
    order: tuple[str, ...]
    rejected: str | None = None
    brackets_ms: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for arm, ms in self.samples_ms.items():
            if not (math.isfinite(ms) and ms > 0):
                raise ValueError(f"a time must be positive and finite, {arm!r} has {ms} ms")
        if sorted(self.order) != sorted(self.samples_ms):
            raise ValueError(f"the order {self.order} does not name the sampled arms once each")


@dataclass(frozen=True)
class Interval:
    """An estimate and what bounds it; `low` and `high` are None where too few rounds bound nothing."""

    low: float | None
    estimate: float
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Half the interval's width relative to the estimate (0.005 is half a percent)."""
        if self.low is None or self.high is None:
            return None
        return math.log(self.high / self.low) / 2

    def scaled(self, factor: float) -> Interval:
        """The same interval in another unit, or moved to another centre."""
        return self._map(lambda value: value * factor)

    def widened(self, share: float) -> Interval:
        """With what no number of rounds removes: each end is moved out by a share of itself."""
        low, high = self.low, self.high
        return Interval(low and low / (1 + share), self.estimate, high and high * (1 + share))

    def exp(self) -> Interval:
        """From logarithms back to ratios or milliseconds."""
        return self._map(math.exp)

    def _map(self, function: Callable[[float], float]) -> Interval:
        low, high = (None if bound is None else function(bound) for bound in (self.low, self.high))
        return Interval(low, function(self.estimate), high)


class Comparison(StrEnum):
    """What an interval of a speedup allows to be said."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class RejectedSample:
    """A sample of a round that does not count, and why."""

    sample_ms: float
    reason: str


@dataclass(frozen=True)
class Timing:
    """What the rounds say about one arm; `speedup` is baseline / arm, so above 1 is faster.

    `time` and `speedup` agree: `time.estimate` is the baseline's time divided by `speedup.estimate`.
    """

    samples_ms: tuple[float, ...]
    rejected: tuple[RejectedSample, ...]
    time: Interval
    speedup: Interval | None

    @property
    def rounds(self) -> int:
        """Rounds in which this arm ran, rejected ones included."""
        return len(self.samples_ms) + len(self.rejected)

    @property
    def time_ms(self) -> float:
        """The typical time of one call."""
        return self.time.estimate

    @property
    def time_ms_low(self) -> float | None:
        """The lower end of the time's interval."""
        return self.time.low

    @property
    def time_ms_high(self) -> float | None:
        """The upper end of the time's interval."""
        return self.time.high


def order_of_round(arms: Collection[str], rng: random.Random) -> tuple[str, ...]:
    """A fresh random order, so that no arm always runs in the wake of the same other."""
    return tuple(rng.sample(sorted(arms), len(arms)))


def reject_rounds(rounds: Sequence[Round], sentinel: str) -> tuple[Round, ...]:
    """The rounds, those marked rejected in which the sentinel stands out from the rounds around it.

    The sentinel is compared with the median of the 17 rounds around it, so slow drift is no evidence. It
    stands out if it is off by more than six robust standard deviations and by more than 1%. At most 5% of
    the rounds are rejected, the worst first, those that arrive rejected counted. The arms' own samples are
    never looked at: rejecting by them would bend the ratio.
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


def median_interval(values: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats, Floats]:
    """(low, median, high) over the last axis, from order statistics: no shape of noise is assumed.

    The sign test's interval: the ranks n/2 -+ t sqrt(n f)/2, between ranks interpolated linearly. f >= 1 pays
    for rounds that resemble their predecessor: r, the lag-1 autocorrelation of the signs around the median
    (corrected for its bias of -(1+3r)/n, capped at 0.95), stands for an AR(1) series of correlation
    q = sin(pi r / 2) (the arcsine law), whose signs sum to a variance n f with
    f = 1 + 4/pi * sum_k arcsin(q^k). t has as many degrees of freedom as independent rounds are left; the
    error rate is (1 - confidence) / LOOK_SHARE. Fewer rounds than can carry that confidence give the range.
    """
    count = values.shape[-1]
    ordered = np.sort(values, axis=-1)
    centre = np.median(ordered, axis=-1)
    inflation = _inflation(np.sign(values - centre[..., None]))
    quantile = _student((1 - confidence) / LOOK_SHARE, np.maximum(count / inflation - 1, 3.0))
    rank = (count + 1) / 2 - quantile * np.sqrt(count * inflation) / 2 - 1
    return _at_rank(ordered, rank), centre, -_at_rank(-ordered[..., ::-1], rank)


def ratio_interval(rounds: Sequence[Round], arm: str, baseline: str, confidence: float = CONFIDENCE) -> Interval:
    """How many times faster `arm` is than `baseline`, from the rounds that count and hold both.

    For a claim about the best of m arms pass 1 - (1 - confidence) / m (Bonferroni).
    Raises ValueError if no such round is left.
    """
    pairs = [
        (r.samples_ms[baseline], r.samples_ms[arm])
        for r in rounds
        if r.rejected is None and arm in r.samples_ms and baseline in r.samples_ms
    ]
    if not pairs:
        raise ValueError(f"no round holds both {arm!r} and {baseline!r}")
    logs = np.log(np.array(pairs, dtype=np.float64))
    return interval_of(logs[:, 0] - logs[:, 1], confidence).exp()


def as_rounds(samples_ms: Mapping[str, Sequence[float]]) -> tuple[Round, ...]:
    """Rounds from what is kept of them: the samples of arms that ran in the same rounds, in milliseconds.

    Raises ValueError for arms with different numbers of samples.
    """
    names = tuple(samples_ms)
    return tuple(Round(dict(zip(names, ms, strict=True)), names) for ms in zip(*samples_ms.values(), strict=True))


def through_baseline(new: Interval, old: Interval) -> Interval:
    """How many times faster `new` is than `old`, two speedups over one baseline, measured in separate runs.

    The bounds' distances to the estimates, as logarithms, add up as the errors of independent estimates do:
    in squares (MOVER; Zou and Donner 2008, doi:10.1002/sim.3095). Without bounds where either has none.
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
    confidence: float = CONFIDENCE,
) -> Timing:
    """The Timing of one arm.

    The time is centred on the time of the arm `scale` (by default the baseline) divided by the ratio to it, not
    on the arm's own median: the two differ by the drift that the ratio cancels, and a table must not rank by one
    number and show another. `scale_ms` is that arm's time in the first cohort; given it, times of every cohort
    stand on one scale (without it: its median in these rounds). The interval's relative width is that of the
    arm's own samples, drift and all. Without either arm the time is the arm's own median. `resolution_ms` is what
    two processes that run one kernel differ by: it widens both intervals.
    Raises ValueError if no round that counts holds the arm, or holds it with the others.
    """
    samples = _accepted(rounds, arm)
    time = interval_of(np.log(samples), confidence).exp()
    speedup = None if baseline is None else ratio_interval(rounds, arm, baseline, confidence)
    scale = scale or baseline
    if scale is not None:
        ratio = ratio_interval(rounds, arm, scale, confidence).estimate
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
    confidence: float = CONFIDENCE,
) -> bool:
    """Whether to stop: at a look every arm's speedup is known to within `half_width`, or it is the last look.

    Rejected rounds count as rounds, so that rejecting cannot move a look. Precision alone stops, never the
    sign of a difference: stopping when a difference shows would show differences that are not there.
    """
    if len(rounds) >= LOOKS[-1]:
        return True
    if len(rounds) not in LOOKS:
        return False
    counted = [r.samples_ms.keys() for r in rounds if r.rejected is None]
    if not all(any({arm, baseline} <= names for names in counted) for arm in arms):
        return False
    widths = (ratio_interval(rounds, arm, baseline, confidence).half_width for arm in arms)
    return all(width is not None and width < half_width for width in widths)


def remaining_ms(resolution_ms: float, processes: int, others: int) -> float:
    """What remains of what two processes of one kernel differ by, over so many of the one and of the other."""
    return resolution_ms * math.sqrt((1 / processes + 1 / others) / 2)


def compare(interval: Interval, margin: float = HALF_WIDTH) -> Comparison:
    """What a speedup's interval says; a difference that lies wholly within `margin` is none.

    An interval that neither lies within the margin nor excludes 1 leaves the question open.
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
        raise ValueError(f"no round that counts holds {arm!r}")
    return np.array(samples, dtype=np.float64)


def interval_of(values: Floats, confidence: float = CONFIDENCE) -> Interval:
    """The median's, without bounds where even the range covers less than the confidence (under 8 values)."""
    low, centre, high = (float(value) for value in median_interval(values, confidence))
    range_misses = 2.0 ** (1 - len(values))
    if range_misses > (1 - confidence) / LOOK_SHARE:
        return Interval(None, centre, None)
    return Interval(low, centre, high)


def _local_median(values: Floats, reach: int = 8) -> Floats:
    """The median of each value and its neighbours, `reach` to either side; edges are mirrored."""
    reach = min(reach, len(values) - 1)
    padded = np.pad(values, reach, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    return np.asarray(np.median(windows, axis=-1), dtype=np.float64)


def _inflation(signs: Floats) -> Floats:
    """How many correlated rounds are worth one independent round; see `median_interval`."""
    count = signs.shape[-1]
    raw = (signs[..., 1:] * signs[..., :-1]).sum(axis=-1) / count
    correlation = np.clip(raw + (1 + 3 * np.clip(raw, 0, 1)) / count, 0, 0.95)
    latent = np.sin(np.pi / 2 * correlation)[..., None] ** np.arange(1, 65)
    return np.asarray(1 + 4 / np.pi * np.arcsin(latent).sum(axis=-1), dtype=np.float64)


def _student(error: float, freedom: Floats) -> Floats:
    """Student's two-sided quantile (Cornish-Fisher expansion; Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(1 - error / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return np.asarray(z + first / freedom + second / freedom**2 + third / freedom**3, dtype=np.float64)


def _at_rank(ordered: Floats, rank: Floats) -> Floats:
    """The value at a fractional rank (0 is the smallest), no lower than the smallest."""
    rank = np.clip(rank, 0, ordered.shape[-1] - 1)
    below = np.floor(rank).astype(np.intp)
    above = np.minimum(below + 1, ordered.shape[-1] - 1)
    low = np.take_along_axis(ordered, below[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(ordered, above[..., None], axis=-1)[..., 0]
    return np.asarray(low + (rank - below) * (high - low), dtype=np.float64)
