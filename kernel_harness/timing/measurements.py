"""Measurements of one cohort as plain values, without processes or devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.device import Steady
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.lookalikes import LOOKALIKES
from kernel_harness.timing import clock
from kernel_harness.timing.intervals import HALF_WIDTH
from kernel_harness.timing.statistics import Round, any_counts, ratio_interval, reject_rounds, remaining_ms
from kernel_harness.workers.faults import Fault

# A kernel's time depends on the kind of the inputs if, in at least _LEAST_OTHERS rounds on other inputs than the
# problem's own, each call takes longer than usual, and their median is longer by _DEPENDS.
_LEAST_OTHERS = 4
_DEPENDS = 1.25
# After so many rounds, the memory of each arm's calls is moved (`OneRound`).
ROUNDS_OF_A_PLACE = 4
# The range of the speedups with so few places is wide enough for the error of their average.
_FEW_PLACES = 4


@dataclass(frozen=True)
class ArmMeasurements:
    """What is known about one arm of a cohort, apart from its times in the rounds (see `Measurements.rounds`).

    `trusted`: the arm holds no candidate. `fault` is None for an arm that has not failed. `settled`: the arm's speedup
    is known precisely enough, so later rounds do not contain the arm. `processes` counts the worker processes that the
    arm has had, one after the other. `waits_for_device`: the arm synchronizes with the device within its calls, so the
    hold cannot hide the time that the host takes to enqueue the call. `unordered`: the arm's kernels do not wait for
    the stream of their inputs, so its worker waits for them on the host, and only the judge's clock can time its calls.
    `warm_ms` holds the times of calls on a warm cache. `steady` holds the times of the call replayed as a CUDA graph,
    or the reason why the replay failed; None if it was not tried. `peak_bytes` is the largest use of device memory by a
    call beyond its inputs, None if unknown. `energy_j` holds the joules of long calls. `warm_ms`, `steady`,
    `peak_bytes` and `energy_j` are for display and do not affect the rank.
    """

    name: str
    trusted: bool = False
    fault: Fault | None = None
    settled: bool = False
    processes: int = 1
    waits_for_device: bool = False
    unordered: bool = False
    warm_ms: tuple[float, ...] = ()
    steady: Steady | str | None = None
    peak_bytes: int | None = None
    energy_j: tuple[float, ...] = ()

    @property
    def begins_on_host(self) -> bool:
        """Returns whether the worker awaits the inputs on the host before each timed call."""
        return self.waits_for_device or self.unordered


@dataclass(frozen=True)
class Measurements:
    """The measurements of one cohort.

    `arms` is keyed by the arm's name. `warmup` holds rounds that do not count, `rounds` the timed rounds. `states`
    holds the device's state (such as clock rates) after each timed round. `as_called` holds rounds of calls that the
    device does not wait for, so that their times contain launch latency; they affect no rank. `audits` counts the timed
    outputs that were compared with the right answer. `resolution_ms` is the difference between the times of two
    processes with the same kernel on this device, which longer timing does not reduce.
    """

    arms: Mapping[str, ArmMeasurements]
    warmup: tuple[Round, ...] = ()
    rounds: tuple[Round, ...] = ()
    states: tuple[Mapping[str, Any], ...] = ()
    as_called: tuple[Round, ...] = ()
    audits: int = 0
    resolution_ms: float = 0.0

    @property
    def broken(self) -> Fault | None:
        """Returns the fault of the baseline "torch" or of the control; None if neither failed.

        If one of these two arms has failed, no arm of the cohort can be timed.
        """
        needed = (self.arms.get(name) for name in (BASELINE, CONTROL))
        return next((arm.fault for arm in needed if arm and arm.trusted and arm.fault), None)

    @property
    def running(self) -> list[str]:
        """Returns the names of the candidates that can still be timed.

        These are the candidates without a fault. No candidate can be timed if `broken` is not None.
        """
        return [] if self.broken else [a.name for a in self.arms.values() if not a.trusted and a.fault is None]

    @cached_property
    def accepted(self) -> tuple[Round, ...]:
        """Returns all timed rounds, with rejected rounds marked and device times that are too short corrected.

        A rejected round does not count in the statistics. A round is rejected if it was marked when it was timed, if
        the control was disturbed, or if the baseline "torch" or the control is missing. Device times of candidates
        that are certainly too short are replaced by the judge's times (`clock.bounded_by_judge`).
        """
        needed = self.arms.keys() & {BASELINE, CONTROL}
        why = "torch or the control failed"
        rounds = [r if needed <= r.samples_ms.keys() else replace(r, rejected=r.rejected or why) for r in self.rounds]
        on_host = [arm.name for arm in self.arms.values() if arm.begins_on_host]
        return self._bounded(reject_rounds(rounds, CONTROL), on_host)

    @cached_property
    def accepted_as_called(self) -> tuple[Round, ...]:
        """Returns the rounds `as_called`, with device times that are too short corrected as in `accepted`."""
        return self._bounded(self.as_called, list(self.arms))

    def _bounded(self, rounds: tuple[Round, ...], on_host: Collection[str]) -> tuple[Round, ...]:
        candidates = [arm.name for arm in self.arms.values() if not arm.trusted]
        always = [arm.name for arm in self.arms.values() if arm.unordered]
        return clock.bounded_by_judge(rounds, candidates, BASELINE, on_host, always)

    def reported_by_device_ms(self, name: str) -> float | None:
        """Returns the median of an arm's device times in ms if `accepted` replaces some of them, otherwise None."""
        own = [r.samples_ms[name] for r in self.rounds if name in r.samples_ms]
        counted = [r.samples_ms[name] for r in self.accepted if name in r.samples_ms]
        return median(own) if own != counted else None

    def is_timed_by_judge_alone(self, name: str) -> bool:
        """Returns whether the times of an arm are the judge's, so that no second clock verifies them."""
        return self.arms[name].unordered or self.reported_by_device_ms(name) is not None

    def slower_on_other_inputs(self, name: str) -> float | None:
        """Returns how many times as long a call of the arm takes on other distributions as on the problem's own inputs.

        The times are relative to the baseline "torch". Inputs that look like the problem's own count as its own.
        Returns None unless the call is clearly longer on other distributions: at least _DEPENDS times as long in the
        median, and longer than usual in each of at least _LEAST_OTHERS rounds.
        """
        counted = [r for r in self.accepted if r.rejected is None and name in r.samples_ms]
        own, others = (
            [
                r.samples_ms[name] / r.samples_ms[BASELINE]
                for r in counted
                if (r.distribution in (OWN, *LOOKALIKES)) is wanted
            ]
            for wanted in (True, False)
        )
        if not own or len(others) < _LEAST_OTHERS:
            return None
        usual, other = median(own), median(others)
        return other / usual if min(others) > usual and other >= _DEPENDS * usual else None

    def resolution_between(self, arm: str, other: str) -> float:
        """Returns the difference in ms that two arms would show by chance alone if they ran the same kernel.

        `arm` and `other` are the names of the arms. The difference that any kernel has is smaller than `resolution_ms`
        if the arms have had several worker processes. The result is larger if the places of their memory have shown
        more (`spread_of_places`).
        """
        known_ms = self.resolution_between_processes(arm, other)
        if spread := self.spread_of_places(arm, other):
            return max(known_ms, spread * median(r.samples_ms[arm] for r in self.rounds if arm in r.samples_ms))
        return known_ms

    def resolution_between_processes(self, arm: str, other: str) -> float:
        """Returns the difference in ms that the worker processes of two arms show with any kernel."""
        return remaining_ms(self.resolution_ms, self.arms[arm].processes, self.arms[other].processes)

    def spread_of_places(self, arm: str, other: str) -> float:
        """Returns by which share the average speedup of `arm` over `other` may be off because of their memory's places.

        It is the largest distance, as a logarithm, between the speedup in all rounds and that in ROUNDS_OF_A_PLACE
        rounds, after which each arm's memory was moved; 0 if that is at most HALF_WIDTH, and on an emulated device. It
        is also 0 for arms with several processes, whose calls are so short that the processes differ by more. For n
        places, more than _FEW_PLACES, it is divided by sqrt(n / _FEW_PLACES), as the error of an average shrinks.
        """
        if not self.resolution_ms or self.arms[arm].processes > 1 or not any_counts(self.accepted, arm, other):
            return 0.0
        centre = ratio_interval(self.accepted, arm, other).estimate
        places = [
            abs(math.log(ratio_interval(rounds, arm, other).estimate / centre))
            for start in range(0, len(self.accepted), ROUNDS_OF_A_PLACE)
            if any_counts(rounds := self.accepted[start : start + ROUNDS_OF_A_PLACE], arm, other)
        ]
        return max(places) / max(1.0, math.sqrt(len(places) / _FEW_PLACES)) if max(places) > HALF_WIDTH else 0.0
