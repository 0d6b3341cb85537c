"""One cohort, timed: interleaved rounds in fresh random order, on inputs nobody has seen. Statistics are timing's."""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from kernel_harness import clock
from kernel_harness.cases import Packed, Reference, pack
from kernel_harness.channel import SharedBuffer
from kernel_harness.clock import Hold
from kernel_harness.device import Device, Steady
from kernel_harness.examine import Answer, Fault, Refused, Subject, compare
from kernel_harness.status import Status
from kernel_harness.tensors import write
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
# Two processes of one kernel differ by the device's resolution, however long they are timed: where that is more than
# this share of the precision wanted, each gives way to a new one after so many rounds, and their mean is told.
_RESOLUTION_SHARE = 0.5
ROUNDS_OF_A_PROCESS, MOST_PROCESSES = 8, 16
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

    `states` are the device's, one after each round; `processes` is how many an arm has had, one after the other;
    `warm_ms`, `steady` and `peak_bytes` are information by arm, and so are `trials`: what culprit tried on those whom
    it suspected.
    """

    arms: list[Arm]
    device: Device
    warmup: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)
    processes: Counter[str] = field(default_factory=Counter)
    audits: int = 0
    calls_s: float = 0.0
    audits_s: float = 0.0
    warm_ms: dict[str, list[float]] = field(default_factory=dict)
    steady: dict[str, Steady | str] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    trials: dict[str, list[Evidence]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.processes.update(arm.name for arm in self.arms)

    def resolution_ms(self, arm: str, other: str) -> float:
        """What remains of what two processes of one kernel differ by, over all that the two arms have had."""
        return self.device.resolution_ms * math.sqrt((1 / self.processes[arm] + 1 / self.processes[other]) / 2)

    @property
    def accepted(self) -> tuple[Round, ...]:
        """All rounds, those marked rejected in which the sentinel stood out; times bounded by the judge's clock."""
        candidates = [arm.name for arm in self.arms if not arm.trusted]
        return clock.bounded(reject_rounds(self.rounds, SENTINEL), candidates, BASELINE)


Start = Callable[[str], Subject]
"""Another process of an arm, ready to be called. Raises Fault or Refused."""


def race(cohort: Cohort, reference: Reference, stop: Stop, tell: Callable[[str], None], start: Start) -> None:
    """Rounds until `stop`. An arm that fails leaves, with its fault. `start` makes another process of an arm.

    What is drawn here comes from no seed of the run: that one is on the disk before the run is over.
    """
    rng = random.SystemRandom()
    began = time.monotonic()
    for arm in cohort.arms:
        arm.subject.worker.pause()
    with closing(Inputs(reference, cohort.device)) as inputs:
        while not _warm(cohort, (time.monotonic() - began) / stop.budget_s):
            tell(f"warming up, round {len(cohort.warmup) + 1}")
            _round(cohort, inputs, rng, cohort.warmup)
        began = time.monotonic()
        while not _done(cohort, stop, time.monotonic() - began):
            if _worn(cohort, stop):
                tell("starting new processes")
                _renew(cohort, inputs, start)
                _round(cohort, inputs, rng, cohort.warmup)
            tell(f"timing round {len(cohort.rounds) + 1}")
            _round(cohort, inputs, rng, cohort.rounds)
            cohort.states.append(cohort.device.state())
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
    return (
        count in LOOKS
        and not _unresolved(cohort, stop)
        and decided(cohort.accepted, [arm.name for arm in running], BASELINE, half_width=stop.half_width)
    )


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

    def again(arm: Arm) -> None:
        with stopped_again(arm):
            arm.subject = start(arm.name)
            cohort.processes[arm.name] += 1
            arm.subject.call(*drawn, hold=cohort.hold.cycles)

    with ThreadPoolExecutor(len(arms)) as pool:
        list(pool.map(again, arms))


def _round(cohort: Cohort, inputs: Inputs, rng: random.Random, kept: list[Round]) -> None:
    """Every running arm once, in a fresh random order, on inputs drawn now. `kept` gets the round."""
    packed, buffer = inputs.draw(rng.choice(_LEADS_BYTES))
    running = {arm.name: arm for arm in cohort.arms if arm.fault is None}
    order = order_of_round(list(running), rng)
    answers: dict[str, Answer] = {}
    warm = kept is cohort.rounds and not cohort.device.emulated and len(kept) % _WARM_EVERY == 0
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


class Inputs:
    """Inputs that nobody has seen, and the memory from which all who are called get the same bytes.

    A device with memory of its own copies from one buffer, which its processes pin once: to pin it for each call is
    noise in the judge's clock. Where calls work on the buffer itself, each drawing has one of its own.
    """

    def __init__(self, reference: Reference, device: Device) -> None:
        self.reference, self._in_place = reference, device.in_place
        self._buffer: SharedBuffer | None = None

    def draw(self, lead_bytes: int = 0) -> tuple[Packed, SharedBuffer]:
        """New ones; those before are gone."""
        packed = pack(self.reference.problem.inputs(secrets.randbits(48)), lead_bytes)
        if self._buffer is None or self._in_place or self._buffer.size < packed.size:
            self.close()
            self._buffer = SharedBuffer(packed.size + max(_LEADS_BYTES) - lead_bytes)
        write(self._buffer.memory, packed.leaves, packed.tensors, packed.size)
        return packed, self._buffer

    def close(self) -> None:
        """Gives the memory back."""
        if self._buffer is not None:
            self._buffer.close()
        self._buffer = None


def _as_round(answers: Mapping[str, Answer], cohort: Cohort) -> Round:
    """Milliseconds by the device's own clock; by the judge's where it has none, whatever a worker says of one."""
    told = {name: answer.clocked.device_ms or 0.0 for name, answer in answers.items()}
    clocked = {n: a for n, a in answers.items() if told[n] >= clock.LEAST_MS and not cohort.device.emulated}
    samples = {n: told[n] if n in clocked else a.bracket_ms for n, a in answers.items()}
    brackets = {name: answer.bracket_ms for name, answer in clocked.items()}
    exposed = [name for name, answer in clocked.items() if answer.clocked.exposed]
    return Round(samples, tuple(answers), cohort.hold.after(exposed), brackets)


def _call(cohort: Cohort, arm: Arm, packed: Packed, buffer: SharedBuffer, *, warm: bool) -> Answer | None:
    with stopped_again(arm):
        if cohort.device.in_place:
            arm.subject.ping()  # awake before the clock runs; elsewhere it would see the inputs before
        answer = arm.subject.call(packed, buffer, hold=cohort.hold.cycles, keep=warm)
        if answer.clocked.peak_bytes is not None:
            cohort.peak_bytes[arm.name] = max(cohort.peak_bytes.get(arm.name, 0), answer.clocked.peak_bytes)
        if warm and (ms := arm.subject.warm(cohort.hold.cycles).device_ms):
            cohort.warm_ms.setdefault(arm.name, []).append(ms)
        return answer
    return None


@contextmanager
def stopped_again(arm: Arm) -> Iterator[None]:
    """An arm's process may be asked, and is stopped afterwards; a fault of it becomes the arm's."""
    try:
        yield
    except Refused as refusal:
        arm.fault = Fault(Status.RUNTIME_ERROR, f"A timed call failed: {refusal}")
    except Fault as fault:
        arm.fault = Fault(fault.status, f"A timed call failed: {fault.reason}", fault.log)
    finally:
        arm.subject.worker.pause()


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


def cohorts(names: Sequence[str], size: int = COHORT) -> list[list[str]]:
    """Candidates in groups of at most `size`, as even as they can be."""
    count = -(-len(names) // size)
    return [list(names[i::count]) for i in range(count)]
