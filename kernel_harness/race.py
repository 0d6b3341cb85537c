"""One cohort, timed: interleaved rounds in fresh random order, on inputs nobody has seen. Statistics are timing's."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from kernel_harness import clock
from kernel_harness.cases import Packed, Reference, pack
from kernel_harness.channel import SharedBuffer
from kernel_harness.clock import Hold
from kernel_harness.device import Device, Steady
from kernel_harness.examine import Answer, Fault, Refused, Subject, buffer_of, compare
from kernel_harness.status import Status
from kernel_harness.timing import LOOKS, Round, decided, order_of_round, reject_rounds

if TYPE_CHECKING:
    from kernel_harness.culprit import Evidence

BASELINE, SENTINEL = "torch", "(sentinel)"
COHORT = 8
LEAST_WARMUP, MOST_WARMUP = 2, 24
# Warm is where the sentinel's last three times differ by less; a device that was idle speeds up for a second.
_FLAT = 0.02
_WARMUP_SHARE = 0.25  # of the budget, at most
LEAST_ROUNDS = 8
# Of the rounds, how many also time every arm on a warm cache: that is information, and costs a call each.
_WARM_EVERY = 4
# Below this a launch is a large part of a call, and a graph says what is left without it.
_SHORT_MS = 0.02
# Timed outputs are compared with the answer: all of the first rounds, then all while that takes no longer than this
# share of the calls' own time, and beyond that a random tenth; which, is decided after the call has returned. Who
# wants to move a median must cheat in half of the rounds: after the first 32 in so many that one is seen.
AUDITED_ROUNDS = 32
AUDIT_TIME_SHARE = 0.3
AUDIT_SHARE = 0.1
# Inputs come to lie where earlier ones lay, and elsewhere: whoever goes by addresses is wrong about both.
_LEADS_BYTES = (0, 4096)


@dataclass
class Arm:
    """One of the things timed against each other. A trusted one holds no candidate; not all are reported."""

    name: str
    subject: Subject
    trusted: bool = False
    reported: bool = True
    fault: Fault | None = None


@dataclass(frozen=True)
class Stop:
    """When a cohort is done: every candidate's ratio known to `half_width`, or the seconds or rounds spent."""

    budget_s: float
    half_width: float
    rounds: int | None = None


@dataclass
class Cohort:
    """What was measured: it is kept up to date round by round, so that an interruption loses nothing.

    `states` are the device's, one after each round; `warm_ms`, `steady` and `peak_bytes` are information by arm,
    and so are `trials`: what culprit tried on those whom it suspected.
    """

    arms: list[Arm]
    device: Device
    warmup: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)
    audits: int = 0
    calls_s: float = 0.0
    audits_s: float = 0.0
    warm_ms: dict[str, list[float]] = field(default_factory=dict)
    steady: dict[str, Steady | str] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    trials: dict[str, list[Evidence]] = field(default_factory=dict)

    @property
    def accepted(self) -> tuple[Round, ...]:
        """All rounds, those marked rejected in which the sentinel stood out; times bounded by the judge's clock."""
        candidates = [arm.name for arm in self.arms if not arm.trusted]
        return clock.bounded(reject_rounds(self.rounds, SENTINEL), candidates, BASELINE)


def race(cohort: Cohort, reference: Reference, stop: Stop, tell: Callable[[str], None]) -> None:
    """Rounds until `stop`. An arm that fails leaves, with its fault.

    What is drawn here comes from no seed of the run: that one is on the disk before the run is over.
    """
    rng = random.SystemRandom()
    start = time.monotonic()
    for arm in cohort.arms:
        arm.subject.worker.pause()
    while not _warm(cohort, (time.monotonic() - start) / stop.budget_s):
        tell(f"warming up, round {len(cohort.warmup) + 1}")
        _round(cohort, reference, rng, cohort.warmup)
    start = time.monotonic()
    while not _done(cohort, stop, time.monotonic() - start):
        tell(f"timing round {len(cohort.rounds) + 1}")
        _round(cohort, reference, rng, cohort.rounds)
        cohort.states.append(cohort.device.state())
    _replay_short_calls(cohort, reference)


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
    return [arm for arm in cohort.arms if not arm.trusted and arm.fault is None]


def _done(cohort: Cohort, stop: Stop, elapsed_s: float) -> bool:
    running = _running(cohort)
    if not running:
        return True
    count = len(cohort.rounds)
    if stop.rounds is not None:
        return count >= stop.rounds
    if elapsed_s >= stop.budget_s and count >= LEAST_ROUNDS:
        return True
    return count in LOOKS and decided(
        cohort.accepted, [arm.name for arm in running], BASELINE, half_width=stop.half_width
    )


def _round(cohort: Cohort, reference: Reference, rng: random.Random, kept: list[Round]) -> None:
    """Every running arm once, in a fresh random order, on inputs drawn now. `kept` gets the round."""
    packed, buffer = new_inputs(reference, rng.choice(_LEADS_BYTES))
    running = {arm.name: arm for arm in cohort.arms if arm.fault is None}
    order = order_of_round(list(running), rng)
    answers: dict[str, Answer] = {}
    warm = kept is cohort.rounds and not cohort.device.emulated and len(kept) % _WARM_EVERY == 0
    start = time.monotonic()
    try:
        for name in order:
            answer = _call(cohort, running[name], packed, buffer, warm=warm)
            if answer is not None:
                answers[name] = answer
        called = time.monotonic()
        cohort.calls_s += called - start
        _audit(cohort, running, answers, reference, packed, rng)
        cohort.audits_s += time.monotonic() - called
    finally:
        buffer.close()
    # A round that an arm dropped out of still holds the others' times.
    kept.append(_as_round({n: answers[n] for n in order if n in answers and running[n].fault is None}, cohort))


def new_inputs(reference: Reference, lead_bytes: int = 0) -> tuple[Packed, SharedBuffer]:
    """Inputs that nobody has seen; the caller closes the buffer."""
    packed = pack(reference.problem.inputs(secrets.randbits(48)), lead_bytes)
    return packed, buffer_of(packed)


def _as_round(answers: Mapping[str, Answer], cohort: Cohort) -> Round:
    """Milliseconds by the device's own clock; by the judge's where it has none, whatever a worker says of one."""
    told = {name: answer.clocked.device_ms or 0.0 for name, answer in answers.items()}
    clocked = {n: a for n, a in answers.items() if told[n] >= clock.LEAST_MS and not cohort.device.emulated}
    samples = {n: told[n] if n in clocked else a.bracket_ms for n, a in answers.items()}
    brackets = {name: answer.bracket_ms for name, answer in clocked.items()}
    exposed = [name for name, answer in clocked.items() if answer.clocked.exposed]
    return Round(samples, tuple(answers), cohort.hold.after(exposed), brackets)


def _call(cohort: Cohort, arm: Arm, packed: Packed, buffer: SharedBuffer, *, warm: bool) -> Answer | None:
    with resumed(arm):
        arm.subject.ping()
        answer = arm.subject.call(packed, buffer, hold=cohort.hold.cycles, keep=warm)
        if answer.clocked.peak_bytes is not None:
            cohort.peak_bytes[arm.name] = max(cohort.peak_bytes.get(arm.name, 0), answer.clocked.peak_bytes)
        if warm and (ms := arm.subject.warm(cohort.hold.cycles).device_ms):
            cohort.warm_ms.setdefault(arm.name, []).append(ms)
        return answer
    return None


@contextmanager
def resumed(arm: Arm) -> Iterator[None]:
    """Lets an arm's process run; a fault of it becomes the arm's."""
    arm.subject.worker.resume()
    try:
        yield
    except Refused as refusal:
        arm.fault = Fault(Status.RUNTIME_ERROR, f"A timed call failed: {refusal}")
    except Fault as fault:
        arm.fault = Fault(fault.status, f"A timed call failed: {fault.reason}", fault.log)
    finally:
        arm.subject.worker.pause()


def _replay_short_calls(cohort: Cohort, reference: Reference) -> None:
    """Information for calls so short that their launch shows: the same as a graph. Failing here is no fault."""
    if cohort.device.emulated:
        return
    short = [
        arm for arm in cohort.arms
        if arm.fault is None and median([r.samples_ms[arm.name] for r in cohort.rounds] or [1.0]) < _SHORT_MS
    ]  # fmt: skip
    if not short:
        return
    packed, buffer = new_inputs(reference)
    try:
        for arm in short:
            with resumed(arm):
                arm.subject.ping()
                arm.subject.call(packed, buffer, keep=True)
                cohort.steady[arm.name] = _replayed(arm.subject)
    finally:
        buffer.close()


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


def cohorts(names: Sequence[str], size: int = COHORT) -> list[list[str]]:
    """Candidates in groups of at most `size`, as even as they can be."""
    count = -(-len(names) // size)
    return [list(names[i::count]) for i in range(count)]
