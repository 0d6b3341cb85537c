"""Statistics of timed rounds: the time and the speedup of an arm, and which rounds count.

The functions of this module have no side effects.

The speedup is the median, over the rounds, of the ratio baseline time / arm time *within* a round. Disturbances of a
whole round cancel in the ratio. Disturbances of single calls hit every arm of a randomly ordered round with equal
probability, so the ratio scatters symmetrically around the truth. docs/timing.md compares the median with the mean. No
sample is trimmed for being slow: each round counts by its rank.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernel_harness.problem.distributions import OWN
from kernel_harness.timing.intervals import Floats, Interval, interval_of

MAX_REJECTED_SHARE = 0.05


@dataclass(frozen=True)
class Round:
    """The times of the arms (candidates, baselines, control) in one round, and the order in which they were called.

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
    `verified` is False if the judge's clock hardly verifies the device's, or contradicts it: `time` is then the longest
    and `speedup` the lowest that the judge's clock leaves possible.
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


def order_of_round(arms: Collection[str], rng: random.Random) -> tuple[str, ...]:
    """Returns the arms in a new random order, so that no arm runs after one particular other arm in every round."""
    return tuple(rng.sample(sorted(arms), len(arms)))


def reject_rounds(rounds: Sequence[Round], control: str) -> tuple[Round, ...]:
    """Returns all rounds, and marks those as rejected in which the control was disturbed.

    `control` is the name of the control's arm. Its time in a round is compared with its median over the 17 rounds
    around that round, so a slow drift rejects no round. The control was disturbed if its time differs from that median
    by more than six robust standard deviations and by more than 1%. At most 5% of the rounds are rejected, those with
    the largest differences first. Rounds that were already rejected count towards the 5%. The samples of other arms do
    not decide, because rejecting rounds by them would bias the ratios.
    """
    allowance = int(MAX_REJECTED_SHARE * len(rounds)) - sum(r.rejected is not None for r in rounds)
    with_control = [i for i, r in enumerate(rounds) if control in r.samples_ms]
    if allowance <= 0 or len(with_control) < 3:
        return tuple(rounds)
    logs = np.log([rounds[i].samples_ms[control] for i in with_control])
    deviations = logs - _local_median(logs)
    fence = max(6 * 1.4826 * float(np.median(np.abs(deviations))), 0.01)
    marked = list(rounds)
    for position in np.argsort(-np.abs(deviations)):
        index, percent = with_control[position], 100 * math.expm1(deviations[position])
        if allowance == 0 or abs(deviations[position]) <= fence:
            break
        if marked[index].rejected is None:
            marked[index] = replace(marked[index], rejected=f"control off by {percent:+.1f}%")
            allowance -= 1
    return tuple(marked)


def any_counts(rounds: Sequence[Round], *arms: str) -> bool:
    """Returns whether a round that counts contains all the `arms`. For two, `ratio_interval` then has a result."""
    return any(set(arms) <= r.samples_ms.keys() for r in rounds if r.rejected is None)


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


def remaining_ms(resolution_ms: float, processes: int, others: int) -> float:
    """Returns the difference in ms that two arms with the same kernel show by chance after averaging over processes.

    `resolution_ms` is that difference if each arm has one worker process. `processes` and `others` are the numbers of
    worker processes of the two arms.
    """
    return resolution_ms * math.sqrt((1 / processes + 1 / others) / 2)


def _accepted(rounds: Sequence[Round], arm: str) -> Floats:
    samples = [r.samples_ms[arm] for r in rounds if r.rejected is None and arm in r.samples_ms]
    if not samples:
        raise ValueError(f"no counted round holds {arm!r}")
    return np.array(samples, dtype=np.float64)


def _local_median(values: Floats, reach: int = 8) -> Floats:
    """Returns for each value the median of the value and its `reach` neighbours on either side. Edges are mirrored."""
    reach = min(reach, len(values) - 1)
    padded = np.pad(values, reach, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    return np.asarray(np.median(windows, axis=-1), dtype=np.float64)
