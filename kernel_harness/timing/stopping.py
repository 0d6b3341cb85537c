"""Decides from a cohort's measurements when warm-up ends, when worker processes are replaced and when timing ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.device.policy import ON_GPU, Policy
from kernel_harness.timing.measurements import Measurements
from kernel_harness.timing.statistics import any_counts, ratio_interval

ANALYSES = (16, 32, 64, 128, 256, 512, 1024)
"""Timing may stop only at an interim analysis, after one of these numbers of rounds."""
# The device is warm if the last three control times differ by less than this share. A GPU that was idle gets faster
# for about a second.
_FLAT = 0.02
_WARMUP_SHARE = 0.25  # warm-up takes at most this share of the budget
# Too few rounds that count give no interval. Where most rounds are rejected, timing ends all the same after
# _MOST_REJECTED times the least number of rounds.
_MOST_REJECTED = 3
# The times of two processes with the same kernel differ by the device's resolution, however long they are timed. If
# that difference is more than _RESOLUTION_SHARE of the wanted precision, each worker process is replaced after
# ROUNDS_OF_A_PROCESS rounds, and timing waits for at most MOST_PROCESSES processes.
_RESOLUTION_SHARE = 0.5
ROUNDS_OF_A_PROCESS, MOST_PROCESSES = 8, 16


@dataclass(frozen=True)
class Stop:
    """The condition that ends the timing of a cohort.

    Timing ends at an interim analysis (ANALYSES) if the speedup of each candidate over `baseline` has a half width
    below `half_width` (relative), or if it is the last analysis. It also ends after `budget_s` seconds and
    `least_rounds` rounds that count. If `rounds` is not None, timing instead ends after exactly that number of rounds.
    """

    budget_s: float
    half_width: float
    rounds: int | None = None
    baseline: str = BASELINE
    least_rounds: int = ON_GPU.least_rounds


def warmed_up(measured: Measurements, spent: float, policy: Policy) -> bool:
    """Returns whether warm-up is over. `spent` is the share of the time budget that warm-up has used.

    Warm-up takes at least `policy.least_warmup` and at most `policy.most_warmup` rounds. In between, it ends if `spent`
    is at least _WARMUP_SHARE. It also ends if the control's times in the last three rounds differ by less than _FLAT
    and none of these rounds was rejected. A warm-up round is rejected if the hold was too short for one of its calls.
    It also ends if no candidate runs any more.
    """
    count = len(measured.warmup)
    if not measured.running:
        return True
    if count < policy.least_warmup:
        return False
    if count >= policy.most_warmup or spent >= _WARMUP_SHARE:
        return True
    last = measured.warmup[-3:]
    times = [r.samples_ms[CONTROL] for r in last if CONTROL in r.samples_ms]
    return len(times) == 3 and max(times) < (1 + _FLAT) * min(times) and not any(r.rejected for r in last)


def done(measured: Measurements, stop: Stop, elapsed_s: float) -> bool:
    """Returns whether the timing of a cohort ends: `stop` is met, or no candidate can be timed.

    `elapsed_s` is the time since the first timed round began.
    """
    if not measured.running:
        return True
    count = len(measured.rounds)
    if stop.rounds is not None:
        return count >= stop.rounds
    if elapsed_s >= stop.budget_s and count >= stop.least_rounds:
        counted = sum(r.rejected is None for r in measured.accepted)
        return counted >= stop.least_rounds or count >= _MOST_REJECTED * stop.least_rounds
    waiting = {name for name in measured.running if not measured.arms[name].settled} - {_baseline(measured, stop)}
    return count in ANALYSES and waiting <= settled(measured, stop)


def settled(measured: Measurements, stop: Stop) -> set[str]:
    """Returns the names of candidates whose speedup is known precisely enough that no further round needs them.

    A slow candidate then does not prolong the rounds that a fast one still needs. The set does not contain a candidate
    that is the baseline of the others. It is empty after a number of rounds that is not in ANALYSES, and also if `stop`
    fixes the number of rounds, or while further worker processes are needed (`_needs_more_processes`).

    The number of rounds that decides includes rejected rounds, so rejecting a round cannot move an analysis. Only the
    precision decides, never the sign of a difference: timing that stops as soon as a difference shows would find false
    differences.
    """
    if stop.rounds is not None or len(measured.rounds) not in ANALYSES or _needs_more_processes(measured, stop):
        return set()
    baseline = _baseline(measured, stop)
    candidates = set(measured.running) - {baseline}
    if len(measured.rounds) >= ANALYSES[-1]:
        return candidates
    return {name for name in candidates if _is_known(measured, name, baseline, stop.half_width)}


def _is_known(measured: Measurements, arm: str, baseline: str, half_width: float) -> bool:
    """Returns whether the half width of the arm's speedup over `baseline` is below `half_width` (relative).

    What the places of the arms' memory change must be below that, too.
    """
    if not any_counts(measured.accepted, arm, baseline):
        return False
    width = ratio_interval(measured.accepted, arm, baseline).half_width
    return width is not None and max(width, measured.spread_of_places(arm, baseline)) < half_width


def processes_worn(measured: Measurements, stop: Stop) -> bool:
    """Returns whether the worker processes of the candidates and of "torch" are to be replaced before the next round.

    After the first ROUNDS_OF_A_PROCESS rounds, they are replaced if `_needs_more_processes`. If they are not replaced
    then, they are never replaced. If they are, they are replaced again after every ROUNDS_OF_A_PROCESS rounds, so that
    each process has the same weight in an arm's average.
    """
    had = measured.arms[BASELINE].processes
    return len(measured.rounds) == had * ROUNDS_OF_A_PROCESS and (had > 1 or _needs_more_processes(measured, stop))


def _baseline(measured: Measurements, stop: Stop) -> str:
    """Returns the name of the baseline that `stop` wants, or "torch" if that baseline is missing or has failed."""
    wanted = measured.arms.get(stop.baseline)
    return stop.baseline if wanted and wanted.fault is None else BASELINE


def _needs_more_processes(measured: Measurements, stop: Stop) -> bool:
    """Returns whether "torch" and the candidates need further worker processes for the wanted precision.

    Two processes with the same kernel differ in their times. Further processes are needed if this difference, after
    averaging over the processes so far, is more than _RESOLUTION_SHARE * `stop.half_width` times the median call of the
    fastest arm. Returns False after MOST_PROCESSES processes of each arm.
    """
    shortest_ms = min(
        median([r.samples_ms[name] for r in measured.rounds if name in r.samples_ms] or [math.inf])
        for name in [*measured.running, BASELINE]
    )
    worst_ms = max(measured.resolution_between_processes(name, BASELINE) for name in measured.running)
    too_coarse = worst_ms > _RESOLUTION_SHARE * stop.half_width * shortest_ms
    return too_coarse and measured.arms[BASELINE].processes < MOST_PROCESSES
