"""Detects candidates that leave work running on the GPU after their call, which slows down the calls timed next.

Stopping a process does not stop its kernels that already run on a GPU. On the emulated device, stopping a process stops
all its work, so this module does nothing there. The control does the same work in every call: a longer control time
right after a candidate's call shows that the candidate left work running.

Words used here: a tested candidate is one that may leave work running. A reading is one measurement of the control's
time. A reading beside a process is taken right after calls of that process, while the process is alive and stopped.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean, median

import numpy as np

from cuda_on_cpu.core.tell import Tell
from kernel_harness.checking.cases import Reference
from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.ipc.packed import pack
from kernel_harness.timing.cohort import Arm, Cohort, asking
from kernel_harness.timing.inputs import DrawnInputs, draw
from kernel_harness.timing.statistics import Round
from kernel_harness.workers.faults import Fault, Refused

FACTOR = 1.25
"""A candidate is tested or flagged only if the control takes more than FACTOR times as long beside the candidate.

"Beside" means: right after calls of the candidate, while its process is alive. A process that does no work makes a
smaller difference than this factor.
"""

TRIALS = 7
"""The number of readings beside a tested candidate, and also the number of readings beside the reference.

The module's docstring explains the words. All readings of a tested candidate's trial are taken in one random order.

A tested candidate is flagged only if all its readings are longer than all readings beside the reference. If it leaves
no work running, each of the C(14, 7) = 3432 ways to distribute the readings is equally likely, whatever the noise
(Fisher's permutation test). It is therefore flagged with probability 1/3432 at most.
"""

# One reading is the median of _MEANS means. Each mean is taken over _CALLS control calls in a row.
_MEANS, _CALLS = 5, 3
# Before a reading, a tested candidate is called repeatedly for at most this long. One that waits for its own work is
# slow.
_CALLING_S = 5.0
# The threshold of the rank sum, in standard deviations. Noise exceeds it for one innocent arm in 30,000.
_SUSPICIOUS = 4.0


@dataclass(frozen=True)
class Evidence:
    """Measured times of the control in ms, taken to find out whether a tested candidate leaves work running.

    The times in `beside_ms` were measured right after calls of the tested candidate, those in `without_ms` right after
    calls of the reference.
    """

    beside_ms: tuple[float, ...] = ()
    without_ms: tuple[float, ...] = ()

    @property
    def is_conclusive(self) -> bool:
        """Returns whether every reading in `beside_ms` is more than FACTOR times every reading in `without_ms`.

        `is_conclusive` is True while one of the two groups is empty. Otherwise it is False if a reading is NaN.
        """
        return all(beside > FACTOR * without for beside in self.beside_ms for without in self.without_ms)

    @property
    def sentence(self) -> str:
        """Returns a text for the author of the candidate: why the verdict is CHEATED, with the measured times."""
        return (
            "The kernel leaves work behind: work goes on after the call has returned, and slows down the calls that "
            f"are timed next. A fixed piece of work took {median(self.beside_ms):.4g} ms beside the kernel and "
            f"{median(self.without_ms):.4g} ms without it (medians of {len(self.beside_ms)} trials each). "
            "Wait for all work before you return."
        )


@phase("interference")
def flag_interference(cohort: Cohort, reference: Reference, tell: Tell) -> bool:
    """Finds the candidates of a timed cohort that leave work running, and gives them a fault with the status CHEATED.

    Ends the worker processes in which the candidates were timed. Each tested candidate is then called in new worker
    processes, each as often as a timed process was, or for _CALLING_S seconds if that is less. `tell` gets a text
    when this begins.
    Returns whether a candidate was flagged. Nothing is done on a device that does not work behind the host.
    """
    if not cohort.device.policy.works_behind:
        return False
    flagged = False
    bench = _Bench(cohort, reference)
    timed = {arm.name: arm for arm in cohort.candidates if arm.fault is None}
    beside_ms = {name: bench.reading(partial(bench.call_timed, arm, draw(reference))) for name, arm in timed.items()}
    for arm in cohort.candidates:
        arm.model.close()
    without_ms = bench.reading(partial(bench.call_timed, bench.arms[BASELINE], draw(reference)))
    for name in to_test(beside_ms, without_ms, cohort.rounds):
        tell("looking for the candidate that slows down the others")
        evidence = tried(partial(bench.fresh_reading, name), random.SystemRandom())
        if evidence.is_conclusive:
            timed[name].fault, flagged = Fault(Status.CHEATED, evidence.sentence), True
    return flagged


def to_test(beside_ms: Mapping[str, float], without_ms: float, rounds: Sequence[Round]) -> list[str]:
    """Returns the names of the candidates that may leave work running.

    `beside_ms` holds one reading beside each candidate. `without_ms` is a reading beside the reference, taken after the
    processes of all candidates have ended. A reading is one measurement of the control's time in ms. A candidate is
    named if its reading exceeds FACTOR * `without_ms`, or if the control was slow right after the candidate's
    calls in `rounds`. The second condition finds a candidate that leaves work running only while it is timed.
    """
    return [n for n, ms in beside_ms.items() if ms > FACTOR * without_ms or _slows_its_successor(rounds, n)]


def _slows_its_successor(rounds: Sequence[Round], name: str) -> bool:
    """Returns whether the control took longer in the rounds in which it ran right after the named arm.

    Returns True only if the median time in these rounds is more than FACTOR times the median time in the other rounds,
    and the rank sum (Mann and Whitney 1947) exceeds its threshold.
    """
    after: list[float] = []
    others: list[float] = []
    for r in rounds:
        if CONTROL in r.samples_ms:
            place = r.order.index(CONTROL)
            followed = place > 0 and r.order[place - 1] == name
            (after if followed else others).append(r.brackets_ms.get(CONTROL, r.samples_ms[CONTROL]))
    m, n = len(after), len(others)
    if not m or not n or median(after) <= FACTOR * median(others):
        return False
    above = int(np.searchsorted(np.sort(others), after).sum())
    return above - m * n / 2 > _SUSPICIOUS * math.sqrt(m * n * (m + n + 1) / 12)  # by the normal approximation


def tried(read: Callable[[bool], float], rng: random.Random) -> Evidence:
    """Takes up to TRIALS readings beside a tested candidate and as many beside the reference, in random order.

    A reading is one measurement of the control's time in ms. `read(True)` takes it right after calls of the tested
    candidate, `read(False)` right after calls of the reference. Returns the readings. The function stops at the first
    one after which the candidate cannot be flagged.
    """
    evidence = Evidence()
    for beside in rng.sample([True, False] * TRIALS, 2 * TRIALS):
        if beside:
            evidence = replace(evidence, beside_ms=(*evidence.beside_ms, read(beside)))
        else:
            evidence = replace(evidence, without_ms=(*evidence.without_ms, read(beside)))
        if not evidence.is_conclusive:
            break
    return evidence


@dataclass
class _Bench:
    """An instrument that times the control, by the judge's clock, right after calls of another arm's process."""

    cohort: Cohort
    reference: Reference
    arms: dict[str, Arm] = field(init=False)

    def __post_init__(self) -> None:
        self.arms = {arm.name: arm for arm in self.cohort.arms}

    def reading(self, before: Callable[[], object]) -> float:
        """Returns one measurement of the control's time, in ms. Calls `before` before each group of control calls.

        The measurement is the median of the means of the groups. A scheduler that favours processes which slept affects
        only the first call of a group, so each group is averaged. The median removes disturbances by other users of the
        machine. The control gets no inputs, because the time to move large inputs would hide a difference. The result
        is NaN if the control fails.
        """
        means_ms: list[float] = []
        nothing = DrawnInputs(pack([]))
        for _ in range(_MEANS):
            before()
            means_ms.append(mean(self._call(self.arms[CONTROL], nothing) for _ in range(_CALLS)))
        return median(means_ms)

    def fresh_reading(self, name: str, beside: bool) -> float:
        """Returns the control's time, in ms, measured right after calls of a new worker process.

        The process runs the tested candidate `name` if `beside` is True, otherwise the reference. Returns NaN if the
        process does not start.

        After a call of the reference, the judge sleeps for the time by which a call of the candidate is longer. Without
        this pause, a harmless candidate with long calls would be flagged: a machine that was idle during these calls is
        slow at first.
        """
        called = self.arms[name if beside else BASELINE]
        fresh = called.model.sibling()
        try:
            fresh.restart()
        except (Fault, Refused):
            return math.nan
        arm = Arm(called.name, fresh, unordered=called.unordered)
        pause_s = 0.0 if beside else max(0.0, self._typical_s(name) - self._typical_s(BASELINE))

        def call() -> None:
            self.call_timed(arm, draw(self.reference))
            time.sleep(pause_s)

        rounds = len(self.cohort.warmup) + len(self.cohort.rounds)
        calls_of_a_process = rounds // self.arms[BASELINE].processes
        with closing(fresh):
            until = time.monotonic() + _CALLING_S
            for _ in range(calls_of_a_process - _MEANS):
                if time.monotonic() < until:
                    self.call_timed(arm, draw(self.reference))
            return self.reading(call)

    def call_timed(self, arm: Arm, drawn: DrawnInputs) -> None:
        """Calls an arm on the inputs `drawn`, as a timed round does. Does nothing if the arm has failed.

        Some calls are repeated at once on a warm cache, as in timed rounds (`Policy.warm_every`).

        `flag_interference` passes the same inputs in all calls of an arm, because drawing large inputs takes long. In
        contrast, `fresh_reading` draws new inputs for each call, as a timed round does. Otherwise a cheating candidate
        could recognise the trial and leave no work running in it.
        """
        if arm.fault is None:
            self._call(arm, drawn, warm=random.random() < 1 / (self.cohort.device.policy.warm_every or math.inf))

    def _call(self, arm: Arm, drawn: DrawnInputs, *, warm: bool = False) -> float:
        with asking(arm):
            bracket_ms = arm.client.call(drawn.packed, timed=arm.timed, keep=warm).timed.bracket_ms
            if warm:
                arm.client.warm(drawn.packed)
            return bracket_ms
        return math.nan

    def _typical_s(self, name: str) -> float:
        """Returns the median time of an arm's calls in all rounds, also of warm-up, in seconds by the judge's clock.

        Returns 0 if the arm was called in no round.
        """
        rounds = [r for r in (*self.cohort.warmup, *self.cohort.rounds) if name in r.samples_ms]
        return median([r.brackets_ms.get(name, r.samples_ms[name]) for r in rounds] or [0.0]) / 1e3
