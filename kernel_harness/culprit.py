"""Who leaves work behind that goes on after its call has returned, where stopping its process does not reach it.

A GPU's kernels, for one, run on. The sentinel does the same work every time: it is timed beside the candidates and
without them, each of whom ends in turn. Timing the candidates themselves is race's work.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import mean, median
from typing import Any

import numpy as np

from kernel_harness.cases import Packed, Reference, pack
from kernel_harness.channel import SharedBuffer
from kernel_harness.cohort import BASELINE, SENTINEL, Arm, Cohort, Start, stopped_again
from kernel_harness.evidence import FACTOR, Evidence
from kernel_harness.examine import Fault, Refused
from kernel_harness.inputs import Inputs, buffer_of
from kernel_harness.race import WARM_EVERY
from kernel_harness.status import Status
from kernel_harness.timing import Round

TRIALS = 7
"""Readings beside a suspect, and as many beside the reference in its place, in random order.

Were the suspect harmless, each of the C(14, 7) = 3432 orders would be as likely to have brought its readings out on
top, whatever noise there is (Fisher's permutation test): that is how rarely an innocent is convicted.
"""

# Of the sentinel in one reading: calls in a row, and how often that; fewer where they take long, as on a busy machine.
_CALLS, _TIMES, _ENOUGH_MS = 3, 5, 100.0
# For how long a suspect is called at most before a reading: who waits for its own work is slow enough by itself.
_CALLING_S = 5.0
# Of a rank sum, in standard deviations: of innocent arms one in 30,000 is looked at.
_SUSPICIOUS = 4.0

Reading = Callable[[bool], float]
"""The sentinel's time in ms beside a fresh process of the suspect, or (False) of the reference in its place."""


def tried(read: Reading, rng: random.Random) -> Evidence:
    """Reads until what was read cannot convince any more, or all is."""
    evidence = Evidence()
    for there in rng.sample([True, False] * TRIALS, 2 * TRIALS):
        if there:
            evidence = replace(evidence, beside_ms=(*evidence.beside_ms, read(there)))
        else:
            evidence = replace(evidence, without_ms=(*evidence.without_ms, read(there)))
        if not evidence.convinces:
            break
    return evidence


def suspects(readings: Mapping[str, tuple[float, ...]], rounds: Sequence[Round]) -> list[str]:
    """Those at whose end the sentinel became faster, and those right after whose calls it was slow.

    By name, readings in ms before its end, and the last one after it. Work that ends by itself soon is gone by then:
    only the rounds show it.
    """
    ended = [name for name, (*before, after) in readings.items() if max(before) > FACTOR * after]
    return ended + [name for name in readings if name not in ended and _slows_its_successor(rounds, name)]


def _slows_its_successor(rounds: Sequence[Round], name: str) -> bool:
    """By its rank sum (Mann and Whitney 1947, their normal approximation), and by how much."""
    after: list[float] = []
    others: list[float] = []
    for r in rounds:
        if SENTINEL in r.samples_ms:
            place = r.order.index(SENTINEL)
            followed = place > 0 and r.order[place - 1] == name
            (after if followed else others).append(r.brackets_ms.get(SENTINEL, r.samples_ms[SENTINEL]))
    m, n = len(after), len(others)
    if not m or not n or median(after) <= FACTOR * median(others):
        return False
    above = int(np.searchsorted(np.sort(others), after).sum())
    return above - m * n / 2 > _SUSPICIOUS * math.sqrt(m * n * (m + n + 1) / 12)


def convict(
    cohort: Cohort,
    reference: Reference,
    start: Start,
    tell: Callable[[str], None],
    finished: Callable[[], None] = lambda: None,
) -> bool:
    """Gives the arms that leave work behind their fault, and ends all candidates' processes. Whether there are any.

    Halving the candidates would need new processes of all, which need not do what the old ones did: these end one by
    one, after another call where a stop does not reach a device's work. New ones, called as often as the old, are what
    the few that are suspected then are judged by; the cohort's `trials` keep what came of it. `finished` is called
    after each.
    """
    convicted = False
    with closing(Inputs(reference, cohort.device)) as inputs:
        bench = _Bench(cohort, inputs, start)
        for name in suspects(_one_by_one(bench), cohort.rounds):
            tell("looking for who slows down the others")
            longer_s = max(0.0, _typical_ms(cohort, name) - _typical_ms(cohort, BASELINE)) / 1e3
            evidence = tried(partial(bench.beside_or_without_ms, name, longer_s), random.SystemRandom())
            cohort.trials.setdefault(name, []).append(evidence)
            if evidence.convinces:
                bench.arms[name].fault, convicted = Fault(Status.CHEATED, evidence.sentence), True
            finished()
    return convicted


def _one_by_one(bench: _Bench) -> dict[str, tuple[float, ...]]:
    """What `suspects` goes by: the candidates end in turn."""
    readings: dict[str, tuple[float, ...]] = {}
    baseline, drawn = bench.arms[BASELINE], bench.inputs.draw()
    last_ms = bench.after_ms(baseline, drawn)
    for arm in [arm for arm in bench.arms.values() if not arm.trusted and arm.fault is None]:
        # Where a stop reaches all of its work, another call would show nothing more.
        called_ms = () if bench.cohort.device.emulated else (bench.after_ms(arm, drawn),)
        arm.subject.close()
        before_ms, last_ms = last_ms, bench.after_ms(baseline, drawn)
        readings[arm.name] = (before_ms, *called_ms, last_ms)
    return readings


def _typical_ms(cohort: Cohort, name: str) -> float:
    """By the judge's clock; zero for who failed before it was timed."""
    rounds = (*cohort.warmup, *cohort.rounds)
    return median([r.brackets_ms.get(name, r.samples_ms[name]) for r in rounds if name in r.samples_ms] or [0.0])


@dataclass(frozen=True)
class _Bench:
    """Where the sentinel is timed by the judge's clock, beside processes that were called and stopped.

    A reading is the mean of a few calls in a row, which a scheduler that favours who slept cannot hide anything from;
    the median of some such means, as the machine's other users come and go.
    """

    cohort: Cohort
    inputs: Inputs
    start: Start

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """By name."""
        return {arm.name: arm for arm in self.cohort.arms}

    @property
    def calls(self) -> int:
        """Of a suspect before a reading: what it does only later must show, too."""
        return (len(self.cohort.warmup) + len(self.cohort.rounds)) // self.cohort.processes[BASELINE]

    def after_ms(self, arm: Arm, drawn: tuple[Packed, SharedBuffer]) -> float:
        """After an arm's calls, where its process can leave work behind that a stop does not reach."""
        still = self.cohort.device.emulated or arm.fault is not None
        return self._reading(lambda: still or self._called(arm, *drawn))

    def beside_or_without_ms(self, name: str, longer_s: float, there: bool) -> float:
        """Beside a new process that is called as in a race, and stopped: a suspect's, or the reference's.

        After the reference's call nothing is done for as long as the suspect's takes `longer_s`: a machine that stood
        idle is slow at first, whoever let it.
        """
        asked = name if there else BASELINE
        try:
            arm = Arm(asked, self.start(asked), trusted=not there)
        except (Fault, Refused):
            return math.nan  # convinces nobody

        def call_it() -> None:
            self._called_as_in_a_race(arm)
            time.sleep(0.0 if there else longer_s)

        with closing(arm.subject):
            until = time.monotonic() + _CALLING_S
            for _ in range(self.calls - _TIMES):
                if time.monotonic() < until:
                    self._called_as_in_a_race(arm)
            return self._reading(call_it)

    def _reading(self, before: Callable[[], Any]) -> float:
        """`before` is done before each of the means."""
        means_ms: list[float] = []
        nothing = pack([])  # what moving large inputs takes would hide much
        with closing(buffer_of(nothing)) as empty:
            while len(means_ms) < _TIMES and sum(means_ms) * _CALLS < _ENOUGH_MS:
                before()
                means_ms.append(mean(self._called(self.arms[SENTINEL], nothing, empty) for _ in range(_CALLS)))
        return median(means_ms)

    def _called_as_in_a_race(self, arm: Arm) -> None:
        """Or who can tell the two apart would be innocent here: on new inputs, sometimes on a warm cache, too."""
        warm = not self.cohort.device.emulated and random.random() < 1 / WARM_EVERY
        self._called(arm, *self.inputs.draw(), warm=warm)

    def _called(self, arm: Arm, packed: Packed, buffer: SharedBuffer, *, warm: bool = False) -> float:
        hold = self.cohort.hold.cycles
        with stopped_again(arm):
            bracket_ms = arm.subject.call(packed, buffer, hold=hold, keep=warm).bracket_ms
            if warm:
                arm.subject.warm(hold)
            return bracket_ms
        return math.nan
