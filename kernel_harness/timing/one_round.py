"""Times one round: calls each arm on the same new inputs, and audits outputs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from statistics import median
from typing import Any

from kernel_harness.checking.answers import compare, compare_bits
from kernel_harness.checking.cases import Reference
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.reference_runs import Answered
from kernel_harness.checking.verify import Check
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.status import Status
from kernel_harness.ipc.input_memory import Written
from kernel_harness.problem.distributions import OWN
from kernel_harness.timing.clock import around_ms
from kernel_harness.timing.cohort import Arm, Cohort, asking
from kernel_harness.timing.inputs import DrawnInputs, draw
from kernel_harness.timing.statistics import Round, order_of_round
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.gated_call import Timed
from kernel_harness.workers.worker_client import Answer

# An arm with short calls, or with launch latency in its times, is called _MANY_CALLS times in a round, on different
# inputs. The judge's clock scatters by microseconds from call to call, and launch latency by tens of microseconds, so
# the medians are then known better. The sets of inputs of a round take at most _MANY_CALLS_BYTES.
_MANY_CALLS, _MANY_CALLS_BYTES = 4, 1 << 28
# Outputs of more than LARGE_BYTES are audited at once, so that one answer at a time is in memory. Others are audited
# after all calls of a round: work that a candidate leaves running would end during an audit, and slow down no call.
# Inputs of more than LARGE_BYTES are drawn once in a round.
LARGE_BYTES = 1 << 30
# The right answer to large outputs is computed again for each arm, unless _ROOM times the bytes of inputs and outputs
# are free: a call needs its inputs, its outputs, the worker's own copy of them, and the judge's.
_ROOM = 3
# In one of eight calls of a candidate the gate stays shut for _SHUT_MS and the time of the call. The GPU goes to the
# worker, if that has work, in less than _SHUT_MS.
_SHUT_SHARE, _SHUT_MS = 1 / 8, 1.0
# The energy of a call is read from a counter that moves in steps of some ten milliseconds and counts for the whole
# device. So it is read for calls of at least _LONG_MS, which take at least _ALONE_SHARE of the time between readings.
_LONG_MS, _ALONE_SHARE = 200.0, 0.8
# A candidate fails after LATE_BUILDS timed calls that asked for a library that the build cache lacked. All workers
# can read the cache, so one could build the answer of a round into a library, and another could look for it there.
LATE_BUILDS = 3
_CALL = "a timed call"  # in messages


class OneRound:
    """One round of a cohort. Every arm that is neither settled nor failed gets the same new inputs.

    They are drawn from `distribution`. If `warm` is True, each arm is called once more right after its last call, when
    its inputs are still in the cache. If `moved`, the memory of each arm's outputs and temporary tensors is first moved
    to another place on the device, because the times of some kernels depend on it; large inputs have another place in
    each call, and with them nothing is moved. If `as_called`, the device does not wait until a call is enqueued: each
    worker awaits the inputs on the host, so that times contain launch latency. The object holds inputs and a right
    answer in the device's memory, so it must be forgotten before the next round begins.
    """

    def __init__(
        self,
        cohort: Cohort,
        reference: Reference,
        rng: random.Random,
        *,
        warm: bool = False,
        moved: bool = False,
        as_called: bool = False,
        distribution: str = OWN,
    ) -> None:
        self.cohort, self._reference, self._rng, self._warm = cohort, reference, rng, warm
        self._as_called, self._moved = as_called, moved
        self._drawn = draw(reference, distribution=distribution)
        self._running = {arm.name: arm for arm in cohort.arms if arm.fault is None and not arm.settled}
        self._others = self._further_inputs()
        self._answered: Answered | None = None
        self._right: tuple[Any, Expectation, bool] | None = None  # and whether it decides

    @property
    def is_large(self) -> bool:
        """Returns whether the inputs are so large that a call takes much longer than a launch."""
        return self._drawn.packed.size > LARGE_BYTES

    def timed(self) -> Round:
        """Times the arms in a new random order. Returns the times as a Round.

        An arm is called once, or several times on different inputs if its calls are short. Outputs are audited
        (`_audit`). The Round has no time of an arm that failed in it.
        """
        calls: dict[str, list[Answer]] = {}
        answers: dict[str, Answer] = {}
        audited = set()
        for name in order_of_round(list(self._running), self._rng):
            start = time.monotonic()
            sets = self._inputs_of(self._running[name])
            made = calls[name] = self._calls(self._running[name], sets)
            answer = next((a for each, a in zip(sets, made, strict=False) if each is self._drawn), None)
            self.cohort.calls_s += time.monotonic() - start
            if answer is None:
                continue
            answer = replace(answer, written=reduce(Written.also, (each.written for each in made), answer.written))
            if answer.nbytes > LARGE_BYTES:
                self._audit({name: answer})
                if not self.cohort.device.has_free(_ROOM * (self._drawn.packed.size + answer.nbytes)):
                    self._answered = self._right = None  # the next arm's call may need their memory
                answer = answer.bare
                audited.add(name)
            answers[name] = answer
        self._audit({n: a for n, a in answers.items() if n not in audited})
        # If an arm failed in this round, the round still holds the times of the other arms.
        faultless = {name: calls[name] for name in answers if self._running[name].fault is None}
        of_calls = self._as_round(faultless)
        around = around_ms(of_calls, BASELINE) if self._as_called else self._around_on_host_ms()
        return replace(of_calls, distribution=self._drawn.distribution, around_on_host_ms=around)

    def _is_called_often(self, arm: Arm) -> bool:
        """Returns whether the arm is called several times: its time in the last round was short, or times scatter.

        The device's policy says how short. Times scatter if they contain launch latency (`as_called`). Returns False
        for a model that is built anew for each call, whose first call could take a minute, and in other rounds for an
        arm whose worker awaits the inputs on the host.
        """
        if arm.client.renews_model:
            return False
        if self._as_called:
            return True
        before = self.cohort.rounds or self.cohort.warmup
        ms = before[-1].samples_ms.get(arm.name) if before else None
        return ms is not None and ms < self.cohort.device.policy.many_calls_below_ms and not arm.begins_on_host

    def _further_inputs(self) -> list[DrawnInputs]:
        """Returns the inputs of the further calls of arms that are called often: none if no arm is."""
        if not any(map(self._is_called_often, self._running.values())):
            return []
        count = min(_MANY_CALLS, _MANY_CALLS_BYTES // max(1, self._drawn.packed.size))
        return [draw(self._reference, distribution=self._drawn.distribution) for _ in range(count - 1)]

    def _inputs_of(self, arm: Arm) -> list[DrawnInputs]:
        """Returns the inputs of the arm's calls, in a random order."""
        if not self._others or not self._is_called_often(arm):
            return [self._drawn]
        return self._rng.sample([self._drawn, *self._others], 1 + len(self._others))

    def _calls(self, arm: Arm, sets: Sequence[DrawnInputs]) -> list[Answer]:
        """Calls the arm once on each of the `sets` of inputs. Returns the answers in order, or none if the arm fails.

        Only the answer to the inputs that all arms get has its outputs. If the round is `warm`, the last call is
        repeated on a warm cache, and its time is added to `Arm.warm_ms`; what it wrote is in the last answer.
        """
        made = []
        with asking(arm):
            built = arm.client.builds.new
            if self._moved and not self.is_large:
                arm.client.call(draw(self._reference).packed, moved=True)
            if (arm.begins_on_host or self._as_called) and sets[0].packed.size <= LARGE_BYTES:
                # The first call of a process that was stopped is slow on the host. It gets other inputs, so that the
                # next call cannot return its output.
                arm.client.call(draw(self._reference).packed, timed=replace(arm.timed, on_host=True))
            for drawn in sets:
                answer = self._call(arm, drawn, keep=self._warm and drawn is sets[-1])
                if not self._as_called:
                    arm.bracket_ms = answer.timed.bracket_ms
                arm.unordered = arm.unordered or answer.timed.unbracketed
                if answer.clocked.peak_bytes is not None:
                    arm.peak_bytes = max(arm.peak_bytes or 0, answer.clocked.peak_bytes)
                made.append(answer if drawn is self._drawn else answer.bare)
                arm.late_builds += arm.client.builds.new > built
                built = arm.client.builds.new
                if arm.late_builds >= LATE_BUILDS:
                    why = f"{LATE_BUILDS} calls built new libraries. Build every library when the file is loaded."
                    raise Fault(Status.RUNTIME_ERROR, why)
            if self._warm:
                clocked, written = arm.client.warm(sets[-1].packed)
                arm.warm_ms += [clocked.device_ms] if clocked.device_ms else []
                made[-1] = replace(made[-1], written=made[-1].written.also(written))
            return made
        return []

    def _call(self, arm: Arm, drawn: DrawnInputs, *, keep: bool) -> Answer:
        """Makes one timed call. Adds the energy of a long one to `Arm.energy_j`, if the device counts it."""
        device, began = self.cohort.device, time.monotonic()
        before = device.energy_j() if arm.bracket_ms >= _LONG_MS and not self._as_called else None
        answer = arm.client.call(drawn.packed, timed=self._timed(arm), keep=keep)
        bracket_ms = answer.timed.bracket_ms
        if before is not None and bracket_ms >= max(_LONG_MS, _ALONE_SHARE * 1e3 * (time.monotonic() - began)):
            after = device.energy_j()
            arm.energy_j += [] if after is None else [after - before]
        return answer

    def _timed(self, arm: Arm) -> Timed:
        """Returns how the arm's next call begins.

        For each candidate's call during warm-up, and for a random _SHUT_SHARE of the others, the gate stays shut for
        longer than the call or the baseline's takes: a kernel that does not wait for the gate is done by then.
        """
        before = self.cohort.rounds or self.cohort.warmup
        if self._as_called:
            return replace(arm.timed, on_host=True)
        if arm.trusted or (self.cohort.rounds and self._rng.random() >= _SHUT_SHARE):
            return arm.timed
        baseline_ms = before[-1].samples_ms.get(BASELINE, 0.0) if before else 0.0
        usual_ms = arm.bracket_ms if math.isfinite(arm.bracket_ms) else 0.0
        return replace(arm.timed, shut_s=(_SHUT_MS + max(usual_ms, baseline_ms)) / 1e3)

    def _around_on_host_ms(self) -> float | None:
        """Returns the bracket minus the device's time, in ms, for a call of "torch" that awaits the inputs on the host.

        Returns None if no arm of the round awaits its inputs on the host, if "torch" is not in the round, or if the
        call fails.
        """
        torch_arm = self._running.get(BASELINE)
        if torch_arm is None or torch_arm.fault is not None:
            return None
        if not any(arm.begins_on_host for arm in self._running.values()):
            return None
        with asking(torch_arm):
            on_host = replace(torch_arm.timed, on_host=True)
            torch_arm.client.call(self._drawn.packed, timed=on_host)  # the first call after a stop is slow on the host
            answer = torch_arm.client.call(self._drawn.packed, timed=on_host)
            return answer.timed.bracket_ms - (answer.clocked.device_ms or 0.0)
        return None

    def _audit(self, answers: Mapping[str, Answer]) -> None:
        """Compares outputs of candidates with the right answer. A wrong output sets the `fault` of its arm.

        What the calls of an arm in this round wrote to inputs or beside them is compared, too (`compare`). If the wrong
        output may come from kernels that run too early (`_may_run_early`), `Arm.unordered` is set instead. The device's
        policy says which outputs are compared. One does not count if the answer does not decide (`Reference.decides`).
        """
        cohort, audits = self.cohort, self.cohort.device.policy.audits
        first = len(cohort.rounds) < audits.rounds or cohort.audits_s < audits.seconds
        every = first or cohort.audits_s <= audits.time_share * cohort.calls_s
        began = time.monotonic()
        untrusted = [n for n in answers if not self._running[n].trusted]
        chosen = [n for n in untrusted if every or self._rng.random() < audits.share]
        if not chosen:
            return
        for name in chosen:
            arm, check = self._running[name], self._checked(answers[name])
            if check is None:
                continue
            cohort.audits += 1
            if check.status is Status.MUTATED_INPUT:
                arm.fault = Fault(check.status, f"A timed call wrote where it must not. {check.detail}")
            elif not check.passed and self._may_run_early(arm):
                arm.unordered = True
            elif not check.passed:
                arm.fault = Fault(check.status, f"The output of a timed call is wrong: {check.detail}")
        cohort.audits_s += time.monotonic() - began

    def _checked(self, answer: Answer) -> Check | None:
        """Compares an answer with the float32 reference's, and if they differ, with the right answer in float64.

        Returns None if the right answer does not decide.
        """
        reference, packed = self._reference, self._drawn.packed
        if not reference.is_short(reference.problem):
            self._answered = self._answered or reference.answer_to(packed)
            equal = compare_bits(answer, self._answered, packed.tensors, _CALL)
            if equal is not None:
                return equal
        if self._right is None:
            structure, expectation = reference.expect(
                reference.problem, packed, _CALL, self._drawn.distribution, timed=True, answered=self._answered
            )
            self._right = structure, expectation, reference.decides(expectation)
        structure, expectation, decides = self._right
        return compare(answer, structure, expectation) if decides else None

    def _may_run_early(self, arm: Arm) -> bool:
        """Returns whether a wrong output may come from kernels that run before the inputs are there.

        Kernels on a stream that does not wait for the stream of the inputs are not held back. Such a candidate is right
        if its inputs are there before the call, so its worker then waits for them on the host. The judge looks for such
        candidates during warm-up only.
        """
        return self.cohort.device.policy.works_behind and not self.cohort.rounds and not arm.unordered

    def _as_round(self, calls: Mapping[str, Sequence[Answer]]) -> Round:
        """Returns the Round with the times of the calls, for an arm with several calls their medians.

        A call is exposed if it was not yet enqueued when the hold ended: its time may contain launch latency. Exposed
        calls do not count, unless more than half of the calls of an arm were exposed. Then they count, and the round is
        rejected, but not for an arm that is always exposed (`Patience.waits`), and not `as_called`. The time of a call
        is the one by the device's clock. The judge's time is used for a call whose device time is missing or too short
        to be real.
        """
        exposed = {n: 2 * sum(answer.exposed for answer in made) > len(made) for n, made in calls.items()}
        counted = {n: [a for a in made if exposed[n] or not a.exposed] for n, made in calls.items()}
        reported = {n: median([a.clocked.device_ms or 0.0 for a in made]) for n, made in counted.items()}
        brackets = {n: median([a.timed.bracket_ms for a in made]) for n, made in counted.items()}
        clocked = {n for n, ms in reported.items() if ms >= self.cohort.device.policy.least_device_ms}
        held = [] if self._as_called else [arm for arm in self.cohort.arms if arm.name in calls]
        leaking = [arm.name for arm in held if arm.patience.update(exposed[arm.name])]
        rejected = f"the launch gap of {', '.join(sorted(leaking))} was not hidden" if leaking else None
        return Round(
            {n: reported[n] if n in clocked else brackets[n] for n in calls},
            tuple(calls),
            rejected,
            {n: brackets[n] for n in calls if n in clocked},
            copied=any(answer.timed.copied for made in calls.values() for answer in made),
        )
