"""One cohort, timed: interleaved rounds in fresh random order, on inputs nobody has seen. Statistics are timing's."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_harness.cases import Packed, Reference, pack
from kernel_harness.channel import SharedBuffer
from kernel_harness.examine import Answer, Fault, Refused, Subject, compare
from kernel_harness.status import Status
from kernel_harness.tensors import write
from kernel_harness.timing import Round, decided, order_of_round, reject_rounds

BASELINE, SENTINEL, NULL = "torch", "(sentinel)", "(null)"
WARMUP_ROUNDS = 2
LEAST_ROUNDS = 8
# Timed outputs are compared with the answer, all of them while that takes no longer than this share of the calls'
# own time, and beyond that a random tenth; which, is decided after the call has returned.
AUDIT_TIME_SHARE = 0.3
AUDIT_SHARE = 0.1
# Inputs come to lie where earlier ones lay, and elsewhere: whoever goes by addresses is wrong about both.
_LEADS_BYTES = (0, 4096)


@dataclass
class Arm:
    """One of the things timed against each other."""

    name: str
    subject: Subject
    judged: bool = True
    fault: Fault | None = None


@dataclass(frozen=True)
class Stop:
    """When a cohort is done: every candidate's ratio known to `half_width`, or the seconds or rounds spent."""

    budget_s: float
    half_width: float
    rounds: int | None = None


@dataclass
class Cohort:
    """What was measured: it is kept up to date round by round, so that an interruption loses nothing."""

    arms: list[Arm]
    warmup_ms: dict[str, list[float]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    audits: int = 0
    calls_s: float = 0.0
    audits_s: float = 0.0

    @property
    def accepted(self) -> tuple[Round, ...]:
        """All rounds, those marked rejected in which the sentinel stood out."""
        return reject_rounds(self.rounds, SENTINEL)


def race(cohort: Cohort, reference: Reference, stop: Stop, tell: Callable[[str], None]) -> None:
    """Rounds until `stop`. An arm that fails leaves, with its fault.

    What is drawn here comes from no seed of the run: that one is on the disk before the run is over.
    """
    rng = random.SystemRandom()
    start = time.monotonic()
    number = 0
    for arm in cohort.arms:
        arm.subject.worker.pause()
    while True:
        _round(cohort, reference, rng, warm=number >= WARMUP_ROUNDS)
        number += 1
        tell(f"timing round {len(cohort.rounds)}")
        if _done(cohort, stop, time.monotonic() - start):
            return


def _done(cohort: Cohort, stop: Stop, elapsed_s: float) -> bool:
    running = [arm for arm in cohort.arms if arm.judged and arm.fault is None]
    if not running:
        return True
    count = len(cohort.rounds)
    if stop.rounds is not None:
        return count >= stop.rounds
    if elapsed_s >= stop.budget_s and count >= LEAST_ROUNDS:
        return True
    arms = [arm.name for arm in running]
    return decided(cohort.accepted, arms, BASELINE, half_width=stop.half_width)


def _round(cohort: Cohort, reference: Reference, rng: random.Random, *, warm: bool) -> None:
    packed = pack(reference.problem.inputs(secrets.randbits(48)), rng.choice(_LEADS_BYTES))
    buffer = SharedBuffer(packed.size)
    write(buffer.memory, packed.leaves, packed.tensors, packed.size)
    running = {arm.name: arm for arm in cohort.arms if arm.fault is None}
    order = order_of_round(list(running), rng)
    answers: dict[str, Answer] = {}
    start = time.monotonic()
    try:
        for name in order:
            answer = _call(running[name], packed, buffer)
            if answer is not None:
                answers[name] = answer
        called = time.monotonic()
        cohort.calls_s += called - start
        _audit(cohort, running, answers, reference, packed, rng if warm else None)
        cohort.audits_s += time.monotonic() - called
    finally:
        buffer.close()
    samples = _scores({n: a for n, a in answers.items() if running[n].fault is None})
    if warm:
        # A round that an arm dropped out of still holds the others' times.
        cohort.rounds.append(Round(samples, tuple(n for n in order if n in samples)))
    else:
        for name, ms in samples.items():
            cohort.warmup_ms.setdefault(name, []).append(ms)


def _call(arm: Arm, packed: Packed, buffer: SharedBuffer) -> Answer | None:
    arm.subject.worker.resume()
    try:
        arm.subject.ping()
        return arm.subject.call(packed, buffer, cold=True)
    except Refused as refusal:
        arm.fault = Fault(Status.RUNTIME_ERROR, f"A timed call failed: {refusal}")
    except Fault as fault:
        arm.fault = Fault(fault.status, f"A timed call failed: {fault.reason}", fault.log)
    finally:
        arm.subject.worker.pause()
    return None


def _scores(answers: Mapping[str, Answer]) -> dict[str, float]:
    """Milliseconds: the device's own time or the bracket beyond the null arm's, whichever is larger.

    Where there is no null arm (the CPU) the bracket is the time, whatever clock a worker says it has.
    """
    null = answers.get(NULL)
    scores = {}
    for name, answer in answers.items():
        if answer.device_ms is None or null is None:
            scores[name] = answer.bracket_ms
        else:
            beyond = answer.bracket_ms - null.bracket_ms
            scores[name] = max(answer.device_ms, beyond) if answer.device_ms > 0 else answer.bracket_ms
    return scores


def _audit(
    cohort: Cohort,
    running: Mapping[str, Arm],
    answers: Mapping[str, Answer],
    reference: Reference,
    packed: Packed,
    rng: random.Random | None,
) -> None:
    """Compares timed outputs with the answer: all while there is time for it, else a random share."""
    every = rng is None or cohort.audits_s <= AUDIT_TIME_SHARE * cohort.calls_s
    chosen = [n for n in answers if running[n].judged and (every or _drawn(rng))]
    if not chosen:
        return
    structure, expectation = reference.expect(reference.problem, packed, "a timed call", "own")
    for name in chosen:
        cohort.audits += 1
        check = compare(answers[name], structure, expectation)
        if not check.passed:
            running[name].fault = Fault(check.status, f"The output of a timed call is wrong: {check.detail}")


def _drawn(rng: random.Random | None) -> bool:
    return rng is None or rng.random() < AUDIT_SHARE


def cohorts(names: Sequence[str], size: int = 8) -> list[list[str]]:
    """Candidates in groups of at most `size`, as even as they can be."""
    count = -(-len(names) // size)
    return [list(names[i::count]) for i in range(count)]
