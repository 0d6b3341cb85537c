"""One cohort, timed: interleaved rounds in fresh random order, on inputs nobody has seen. Statistics are timing's."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from statistics import median

from kernel_harness import clock
from kernel_harness.cases import Packed, Reference
from kernel_harness.channel import SharedBuffer
from kernel_harness.cohort import BASELINE, SENTINEL, Arm, Cohort, Start, stopped_again
from kernel_harness.device import Steady
from kernel_harness.examine import Answer, Fault, Refused, Subject, compare
from kernel_harness.inputs import Inputs
from kernel_harness.timing import LOOKS, Round, decided, order_of_round

LEAST_WARMUP, MOST_WARMUP = 2, 24
# Warm is where the sentinel's last three times differ by less; a device that was idle speeds up for a second.
_FLAT = 0.02
_WARMUP_SHARE = 0.25  # of the budget, at most
LEAST_ROUNDS = 8
# Two processes of one kernel differ by the device's resolution, however long they are timed: where that is more than
# this share of the precision wanted, each gives way to a new one after so many rounds, and their mean is told.
_RESOLUTION_SHARE = 0.5
ROUNDS_OF_A_PROCESS, MOST_PROCESSES = 8, 16
# Of the rounds, how many also time every arm on a warm cache: that is information, and costs a call each.
WARM_EVERY = 4
# Below this a launch is a large part of a call, and a graph says what is left without it.
_SHORT_MS = 0.02
# Timed outputs are compared with the answer: all of the first rounds, then all while that takes no longer than this
# share of the calls' own time, and beyond that a random tenth; which, is decided after the call has returned. Who
# wants to move a median must cheat in half of the rounds: after the first 32 in so many that one is seen.
AUDITED_ROUNDS = 32
AUDIT_TIME_SHARE = 0.3
AUDIT_SHARE = 0.1


@dataclass(frozen=True)
class Stop:
    """When a cohort is done: every candidate's ratio to the baseline known to `half_width`, or all is spent."""

    budget_s: float
    half_width: float
    rounds: int | None = None
    baseline: str = BASELINE


def race(
    cohort: Cohort,
    reference: Reference,
    stop: Stop,
    tell: Callable[[str], None],
    start: Start,
    finished: Callable[[], None] = lambda: None,
) -> None:
    """Rounds until `stop`; `finished` is called after each. An arm that fails leaves, with its fault.

    `start` makes another process of an arm. What is drawn here comes from no seed of the run: that one is on the disk
    before the run is over.
    """
    rng = random.SystemRandom()
    began = time.monotonic()
    for arm in cohort.arms:
        arm.subject.worker.pause()
    with closing(Inputs(reference, cohort.device)) as inputs:
        while not _warm(cohort, (time.monotonic() - began) / stop.budget_s):
            tell(f"warming up, round {len(cohort.warmup) + 1}")
            _round(cohort, inputs, rng, cohort.warmup)
            finished()
        began = time.monotonic()
        while not _done(cohort, stop, time.monotonic() - began):
            if _worn(cohort, stop):
                tell("starting new processes")
                _renew(cohort, inputs, start)
                _round(cohort, inputs, rng, cohort.warmup)
                finished()
            tell(f"timing round {len(cohort.rounds) + 1}")
            _round(cohort, inputs, rng, cohort.rounds)
            cohort.states.append(cohort.device.state())
            finished()
        _replay_short_calls(cohort, inputs)


def _warm(cohort: Cohort, spent: float) -> bool:
    """Whether the sentinel has come to rest and every launch gap is hidden; enough of the budget ends it, too."""
    count = len(cohort.warmup)
    if count < LEAST_WARMUP or not _running(cohort):
        return count >= LEAST_WARMUP or not _running(cohort)
    if cohort.device.emulated or count >= MOST_WARMUP or spent >= _WARMUP_SHARE:
        return True
    last = cohort.warmup[-3:]
    times = [r.samples_ms[SENTINEL] for r in last if SENTINEL in r.samples_ms]
    return len(times) == 3 and max(times) < (1 + _FLAT) * min(times) and not any(r.rejected for r in last)


def _running(cohort: Cohort) -> list[Arm]:
    """Candidates that can be timed."""
    return [] if cohort.broken else [arm for arm in cohort.arms if not arm.trusted and arm.fault is None]


def _done(cohort: Cohort, stop: Stop, elapsed_s: float) -> bool:
    running = _running(cohort)
    if not running:
        return True
    count = len(cohort.rounds)
    if stop.rounds is not None:
        return count >= stop.rounds
    if elapsed_s >= stop.budget_s and count >= LEAST_ROUNDS:
        return True
    return (
        count in LOOKS
        and not _unresolved(cohort, stop)
        and decided(cohort.accepted, [arm.name for arm in running], _against(cohort, stop), half_width=stop.half_width)
    )


def _against(cohort: Cohort, stop: Stop) -> str:
    """Torch, where what was asked for is not there, or not any more."""
    there = any(arm.name == stop.baseline and arm.fault is None for arm in cohort.arms)
    return stop.baseline if there else BASELINE


def _unresolved(cohort: Cohort, stop: Stop) -> bool:
    """Whether more processes are worth having, for the shortest of the calls."""
    arms = [arm.name for arm in _running(cohort)]
    shortest_ms = min(
        median([r.samples_ms[name] for r in cohort.rounds if name in r.samples_ms] or [math.inf])
        for name in [*arms, BASELINE]
    )
    worst_ms = max(cohort.resolution_ms(name, BASELINE) for name in arms)
    return worst_ms > _RESOLUTION_SHARE * stop.half_width * shortest_ms and cohort.processes[BASELINE] < MOST_PROCESSES


def _worn(cohort: Cohort, stop: Stop) -> bool:
    """Whether the processes have had their share of the rounds: the same for all, or one would weigh more."""
    had = cohort.processes[BASELINE]
    return len(cohort.rounds) == had * ROUNDS_OF_A_PROCESS and (had > 1 or _unresolved(cohort, stop))


def _renew(cohort: Cohort, inputs: Inputs, start: Start) -> None:
    """Another process for each candidate and for torch, called once. An arm that does not start again leaves."""
    arms = [arm for arm in cohort.arms if arm.fault is None and (not arm.trusted or arm.name == BASELINE)]
    for arm in arms:
        arm.subject.close()
    drawn = inputs.draw()

    def started(arm: Arm) -> Subject:
        subject = start(arm.name)
        try:
            # What compiles in its first call has to share the machine with the others here.
            subject.call(*drawn, hold=cohort.hold.cycles, patience=len(arms))
        except BaseException:
            subject.close()
            raise
        return subject

    arms.sort(key=lambda arm: not arm.trusted)
    pool = ThreadPoolExecutor(len(arms))
    try:
        # Torch before any candidate is there to take what it needs.
        for side_by_side in (arms[:1], arms[1:]):
            for arm, subject in [(arm, pool.submit(started, arm)) for arm in side_by_side]:
                with stopped_again(arm):
                    arm.subject = subject.result()
                    cohort.processes[arm.name] += 1
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # who interrupts does not wait for what is starting


def _round(cohort: Cohort, inputs: Inputs, rng: random.Random, kept: list[Round]) -> None:
    """Every running arm once, in a fresh random order, on inputs drawn now. `kept` gets the round."""
    packed, buffer = inputs.draw()
    running = {arm.name: arm for arm in cohort.arms if arm.fault is None}
    order = order_of_round(list(running), rng)
    answers: dict[str, Answer] = {}
    warm = kept is cohort.rounds and not cohort.device.emulated and len(kept) % WARM_EVERY == 0
    start = time.monotonic()
    for name in order:
        answer = _call(cohort, running[name], packed, buffer, warm=warm)
        if answer is not None:
            answers[name] = answer
    called = time.monotonic()
    cohort.calls_s += called - start
    _audit(cohort, running, answers, inputs.reference, packed, rng)
    cohort.audits_s += time.monotonic() - called
    # A round that an arm dropped out of still holds the others' times.
    kept.append(_as_round({n: answers[n] for n in order if n in answers and running[n].fault is None}, cohort))


def _as_round(answers: Mapping[str, Answer], cohort: Cohort) -> Round:
    """Milliseconds by the device's own clock; by the judge's where it has none, whatever a worker says of one."""
    told = {name: answer.clocked.device_ms or 0.0 for name, answer in answers.items()}
    clocked = {n: a for n, a in answers.items() if told[n] >= clock.LEAST_MS and not cohort.device.emulated}
    samples = {n: told[n] if n in clocked else a.bracket_ms for n, a in answers.items()}
    brackets = {name: answer.bracket_ms for name, answer in clocked.items()}
    exposed = [name for name, answer in clocked.items() if answer.clocked.exposed]
    trusted = {arm.name for arm in cohort.arms if arm.trusted}
    return Round(samples, tuple(answers), cohort.hold.after(exposed, trusted), brackets)


def _call(cohort: Cohort, arm: Arm, packed: Packed, buffer: SharedBuffer, *, warm: bool) -> Answer | None:
    with stopped_again(arm):
        answer = arm.subject.call(packed, buffer, hold=cohort.hold.cycles, keep=warm)
        if answer.clocked.peak_bytes is not None:
            cohort.peak_bytes[arm.name] = max(cohort.peak_bytes.get(arm.name, 0), answer.clocked.peak_bytes)
        if warm and (ms := arm.subject.warm(cohort.hold.cycles).device_ms):
            cohort.warm_ms.setdefault(arm.name, []).append(ms)
        return answer
    return None


def _replay_short_calls(cohort: Cohort, inputs: Inputs) -> None:
    """Information for calls so short that their launch shows: the same as a graph. Failing here is no fault."""
    if cohort.device.emulated:
        return
    short = [
        arm for arm in cohort.arms
        if arm.fault is None and median([r.samples_ms[arm.name] for r in cohort.rounds] or [1.0]) < _SHORT_MS
    ]  # fmt: skip
    if not short:
        return
    packed, buffer = inputs.draw()
    for arm in short:
        with stopped_again(arm):
            arm.subject.call(packed, buffer, keep=True)
            cohort.steady[arm.name] = _replayed(arm.subject)


def _replayed(subject: Subject) -> Steady | str:
    try:
        return subject.steady() or "it told no times"
    except (Fault, Refused) as reason:
        return f"it cannot be captured as a graph: {reason}"


def _audit(
    cohort: Cohort,
    running: Mapping[str, Arm],
    answers: Mapping[str, Answer],
    reference: Reference,
    packed: Packed,
    rng: random.Random,
) -> None:
    """Compares timed outputs with the answer: all while there is time for it, else a random share."""
    every = len(cohort.rounds) < AUDITED_ROUNDS or cohort.audits_s <= AUDIT_TIME_SHARE * cohort.calls_s
    chosen = [n for n in answers if not running[n].trusted and (every or rng.random() < AUDIT_SHARE)]
    if not chosen:
        return
    structure, expectation = reference.expect(reference.problem, packed, "a timed call", "own")
    for name in chosen:
        cohort.audits += 1
        check = compare(answers[name], structure, expectation)
        if not check.passed:
            running[name].fault = Fault(check.status, f"The output of a timed call is wrong: {check.detail}")
