"""Times one cohort in rounds. Each round times its arms in a new random order on inputs that no arm has seen before.

In a round, an arm is called once, or several times on different inputs if its calls on a GPU are short. An arm takes
part in a round unless it has failed or its speedup is known precisely enough.

`time_rounds` schedules the rounds and `_round` runs one. `Subject.call` (workers.subject) sends one call to a worker
process. In the worker process, `Worker` (worker.worker) handles the call, and the method `timed` of the device measures
it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from statistics import median
from threading import BoundedSemaphore
from typing import Any

from cuda_on_cpu.core.tell import Tell
from cuda_on_cpu.core.waiting import until_done
from kernel_harness.checking.answers import compare
from kernel_harness.checking.cases import Reference
from kernel_harness.checking.compared import Expectation
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.device import Device, Steady
from kernel_harness.ipc.input_memory import Written
from kernel_harness.problem.problem import OWN
from kernel_harness.timing import stopping
from kernel_harness.timing.clock import BRIEF_MS, Patience
from kernel_harness.timing.inputs import DrawnInputs, distributions, draw
from kernel_harness.timing.measurements import ArmMeasurements, Measurements
from kernel_harness.timing.statistics import Round, order_of_round
from kernel_harness.timing.stopping import Stop
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.gated_call import Timed
from kernel_harness.workers.model_process import ModelProcess
from kernel_harness.workers.subject import Answer, Subject

# An arm with short calls is called _MANY_CALLS times in a round, on different inputs. The judge's clock scatters by
# microseconds from call to call, so the medians of its times are then known better. The sets of inputs of a round take
# at most _MANY_CALLS_BYTES.
_MANY_CALLS, _MANY_CALLS_BYTES = 4, 1 << 28
# Outputs of more than _LARGE_BYTES are audited at once, so that one answer at a time is in memory. Others are audited
# after all calls of a round: work that a candidate leaves running would end during an audit, and slow down no call.
# Inputs of more than _LARGE_BYTES are drawn once in a round.
_LARGE_BYTES = 1 << 30
# The right answer to large outputs is computed again for each arm, unless _ROOM times the bytes of inputs and outputs
# are free: a call needs its inputs, its outputs, the worker's own copy of them, and the judge's.
_ROOM = 3
# A candidate fails after SLOW_PAUSES slow pauses, because the other arms would have to wait each time. A pause is slow
# if it takes longer than SLOW_PAUSE_S and longer than the call before it: a worker that frees gigabytes of inputs after
# a long call cannot be stopped meanwhile. A usual pause takes some milliseconds; on two cores with a load of 16 the
# longest of 1,300 pauses of honest workers took 32 ms.
SLOW_PAUSE_S, SLOW_PAUSES = 0.5, 3
# A candidate fails after LATE_BUILDS timed calls that asked for a library that the build cache lacked. All workers
# can read the cache, so one could build the answer of a round into a library, and another could look for it there.
LATE_BUILDS = 3


@dataclass
class Arm:
    """One of the models that are timed against each other. `model` owns the worker process that runs it.

    `trusted`: the arm is a baseline or the sentinel, so its process runs no candidate's code. `settled`: the arm's
    speedup is known precisely enough, so it takes part in no further round. `patience` is how long the judge waits for
    a call to be enqueued. `slow_pauses_s` holds the seconds of each slow pause, and `late_builds` is the number of
    rounds in which the arm's calls built a new library. `bracket_ms` is the judge's bracket of the last timed call.
    `ArmMeasurements` explains the other fields.
    """

    name: str
    model: ModelProcess
    trusted: bool = False
    fault: Fault | None = None
    settled: bool = False
    patience: Patience = field(default_factory=Patience)
    unordered: bool = False
    processes: int = 1
    warm_ms: list[float] = field(default_factory=list)
    steady: Steady | str | None = None
    peak_bytes: int | None = None
    slow_pauses_s: list[float] = field(default_factory=list)
    late_builds: int = 0
    bracket_ms: float = math.inf

    @property
    def subject(self) -> Subject:
        """Returns the client of the present worker process."""
        return self.model.running

    @property
    def begins_on_host(self) -> bool:
        """Returns whether the worker awaits the inputs on the host before a timed call."""
        return self.patience.waits or self.unordered

    @property
    def timed(self) -> Timed:
        """Returns how the arm's next timed call begins."""
        return Timed(self.patience.hold_s, self.begins_on_host, brief=self.bracket_ms < BRIEF_MS)

    @phase("pauses")
    def pause(self, asked_s: float) -> None:
        """Pauses the worker process after requests that took `asked_s` seconds.

        A pause is slow if it takes longer than `asked_s` and longer than SLOW_PAUSE_S. If SLOW_PAUSES pauses of a
        candidate have been slow, the candidate gets a fault.
        """
        start = time.monotonic()
        self.subject.worker.pause()
        took_s = time.monotonic() - start
        if took_s > max(SLOW_PAUSE_S, asked_s):
            self.slow_pauses_s.append(took_s)
        if len(self.slow_pauses_s) >= SLOW_PAUSES and not self.trusted and self.fault is None:
            self.fault = Fault(
                Status.CRASHED,
                f"After each of {SLOW_PAUSES} calls, stopping the process and those that it started took longer than "
                f"the call itself and longer than {SLOW_PAUSE_S:g} s. No other candidate could be timed in this "
                "time. End all work before the call returns.",
            )


@dataclass
class Cohort:
    """Arms that are timed together, with their measurements so far.

    The measurements of a round are added when it ends, so an interruption of the run loses none. `calls_s` and
    `audits_s` are the seconds spent on calls and on audits so far. `Measurements` explains the other fields.
    """

    arms: list[Arm]
    device: Device
    warmup: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    audits: int = 0
    calls_s: float = 0.0
    audits_s: float = 0.0

    @property
    def candidates(self) -> list[Arm]:
        """Returns the arms that hold candidates, including arms that have failed."""
        return [arm for arm in self.arms if not arm.trusted]

    def clock_s(self) -> float:
        """Returns the time in seconds of a clock that does not count the slow pauses of the arms (`Arm.pause`).

        The budget is measured with this clock, so a candidate whose process cannot be stopped quickly does not use up
        the time of the other arms.
        """
        return time.monotonic() - sum(sum(arm.slow_pauses_s) for arm in self.arms)

    def measured(self) -> Measurements:
        """Returns a copy of the measurements so far, as plain values."""
        arms = {
            arm.name: ArmMeasurements(
                arm.name, arm.trusted, arm.fault, arm.settled, arm.processes, arm.patience.waits, arm.unordered,
                tuple(arm.warm_ms), arm.steady, arm.peak_bytes,
            )
            for arm in self.arms
        }  # fmt: skip
        return Measurements(
            arms,
            tuple(self.warmup),
            tuple(self.rounds),
            tuple(self.states),
            self.audits,
            self.device.policy.resolution_ms,
        )


@phase("rounds")
def time_rounds(cohort: Cohort, reference: Reference, stop: Stop, tell: Tell) -> None:
    """Runs rounds and adds their measurements to `cohort`, until `stop` says that no further round is needed.

    Warm-up rounds come first. An arm that fails keeps its fault and takes part in no further round. `tell` gets a text
    at each step. Raises torch.OutOfMemoryError if the device has too little memory for inputs or the right answer.
    The inputs, and the order of the arms in each round, are drawn from the operating system's random source, not from
    the seed of the run. That seed is written to disk before the run ends, so a candidate that could read it could
    predict the inputs.
    """
    rng = random.SystemRandom()
    _start_processes(cohort, reference)
    for arm in cohort.arms:
        arm.model.pause()
    drawn_from = distributions(reference.other_distributions(), rng)
    began = cohort.clock_s()
    policy = cohort.device.policy
    while not stopping.warmed_up(cohort.measured(), (cohort.clock_s() - began) / stop.budget_s, policy):
        tell(f"warming up, round {len(cohort.warmup) + 1}")
        cohort.warmup.append(_round(cohort, reference, rng))
    began = cohort.clock_s()
    while not stopping.done(cohort.measured(), stop, cohort.clock_s() - began):
        settled = stopping.settled(cohort.measured(), stop)
        for arm in cohort.arms:
            arm.settled = arm.settled or arm.name in settled
        if stopping.processes_worn(cohort.measured(), stop):
            tell("starting new processes")
            _replace_processes(cohort, reference)
            cohort.warmup.append(_round(cohort, reference, rng))
        tell(f"timing round {len(cohort.rounds) + 1}")
        warm = policy.warm_every is not None and len(cohort.rounds) % policy.warm_every == 0
        cohort.rounds.append(_round(cohort, reference, rng, warm=warm, distribution=next(drawn_from)))
        cohort.states.append(cohort.device.state())
    _replay_short_calls(cohort, reference)


@contextmanager
def asking(arm: Arm) -> Iterator[None]:
    """Returns a context in which the arm's worker process may be sent requests. At its end the process is paused.

    If a Fault or Refused is raised in the context, the context stores it as the arm's fault and does not raise it
    again.
    """
    start = time.monotonic()
    try:
        yield
        arm.subject.release_large()
    except Refused as refusal:
        arm.fault = Fault(Status.RUNTIME_ERROR, f"A timed call failed: {refusal}")
    except Fault as fault:
        arm.fault = Fault(
            fault.status, f"A timed call failed: {fault.reason}", fault.log, lacked_memory=fault.lacked_memory
        )
    finally:
        arm.pause(time.monotonic() - start)


def _round(
    cohort: Cohort, reference: Reference, rng: random.Random, *, warm: bool = False, distribution: str = OWN
) -> Round:
    """Times every arm that is neither settled nor failed, in a new random order. Returns the times as a Round.

    All arms get the same new inputs. An arm is called once, or several times on different inputs if its calls are
    short. Outputs are audited (`_audit`). The Round has no time of an arm that failed in it.

    If `warm` is True, each arm is called once more right after its last call, when its inputs are still in the cache.
    """
    drawn = draw(reference, distribution=distribution)
    running = {arm.name: arm for arm in cohort.arms if arm.fault is None and not arm.settled}
    others = _further_inputs(cohort, running, reference, drawn)
    calls: dict[str, list[Answer]] = {}
    answers: dict[str, Answer] = {}
    audited = set()

    @cache
    def right() -> tuple[Any, Expectation]:
        return reference.expect(reference.problem, drawn.packed, "a timed call", drawn.distribution, timed=True)

    for name in order_of_round(list(running), rng):
        start = time.monotonic()
        sets = [drawn]
        if others and _has_short_calls(cohort, running[name]):
            sets = rng.sample([drawn, *others], 1 + len(others))
        made = calls[name] = _calls(cohort, running[name], reference, sets, drawn, warm=warm)
        answer = next((a for each, a in zip(sets, made, strict=False) if each is drawn), None)
        cohort.calls_s += time.monotonic() - start
        if answer is None:
            continue
        answer = replace(answer, written=reduce(Written.also, (each.written for each in made), answer.written))
        if answer.nbytes > _LARGE_BYTES:
            _audit(cohort, running, {name: answer}, reference, right, rng)
            if not cohort.device.has_free(_ROOM * (drawn.packed.size + answer.nbytes)):
                right.cache_clear()  # the next arm's call may need its memory
            answer = answer.bare
            audited.add(name)
        answers[name] = answer
    _audit(cohort, running, {n: a for n, a in answers.items() if n not in audited}, reference, right, rng)
    # If an arm failed in this round, the round still holds the times of the other arms.
    faultless = {name: calls[name] for name in answers if running[name].fault is None}
    around_ms = _around_on_host_ms(cohort, running, drawn)
    return replace(_as_round(faultless, cohort), distribution=distribution, around_on_host_ms=around_ms)


def _has_short_calls(cohort: Cohort, arm: Arm) -> bool:
    """Returns whether the arm's time in the last round was below that of the device's policy.

    Returns False for an arm whose worker awaits the inputs on the host, and for a model that is built anew for each
    call: its first call could take a minute.
    """
    before = cohort.rounds or cohort.warmup
    ms = before[-1].samples_ms.get(arm.name) if before else None
    is_short = ms is not None and ms < cohort.device.policy.many_calls_below_ms
    return is_short and not arm.begins_on_host and not arm.subject.renews_model


def _further_inputs(
    cohort: Cohort, running: Mapping[str, Arm], reference: Reference, drawn: DrawnInputs
) -> list[DrawnInputs]:
    """Returns the inputs of the further calls of arms with short calls: none if no arm has any."""
    if not any(_has_short_calls(cohort, arm) for arm in running.values()):
        return []
    count = min(_MANY_CALLS, _MANY_CALLS_BYTES // max(1, drawn.packed.size))
    return [draw(reference, distribution=drawn.distribution) for _ in range(count - 1)]


def _around_on_host_ms(cohort: Cohort, running: Mapping[str, Arm], drawn: DrawnInputs) -> float | None:
    """Returns the bracket minus the device's time, in ms, for a call of "torch" that awaits the inputs on the host.

    Returns None if no arm of the round awaits its inputs on the host, if "torch" is not in the round, or if the call
    fails.
    """
    torch_arm = running.get(BASELINE)
    if torch_arm is None or torch_arm.fault is not None or not any(arm.begins_on_host for arm in running.values()):
        return None
    with asking(torch_arm):
        on_host = replace(torch_arm.timed, on_host=True)
        torch_arm.subject.call(drawn.packed, timed=on_host)  # the first call after a stop is slow on the host
        answer = torch_arm.subject.call(drawn.packed, timed=on_host)
        return answer.timed.bracket_ms - (answer.clocked.device_ms or 0.0)
    return None


def _calls(
    cohort: Cohort, arm: Arm, reference: Reference, sets: Sequence[DrawnInputs], kept: DrawnInputs, *, warm: bool
) -> list[Answer]:
    """Calls the arm once on each of the `sets` of inputs. Returns the answers in order, or none if the arm fails.

    Only the answer to the inputs `kept` has its outputs. If `warm`, the last call is repeated on a warm cache, and its
    time is added to `Arm.warm_ms`; what it wrote is in the last answer.
    """
    made = []
    with asking(arm):
        built = arm.subject.builds.new
        if arm.begins_on_host and sets[0].packed.size <= _LARGE_BYTES:
            # The first call of a process that was stopped is slow on the host. It gets other inputs, so that the next
            # call cannot return its output.
            arm.subject.call(draw(reference).packed, timed=arm.timed)
        for drawn in sets:
            answer = arm.subject.call(drawn.packed, timed=arm.timed, keep=warm and drawn is sets[-1])
            arm.bracket_ms = answer.timed.bracket_ms
            arm.unordered = arm.unordered or answer.timed.late
            if answer.clocked.peak_bytes is not None:
                arm.peak_bytes = max(arm.peak_bytes or 0, answer.clocked.peak_bytes)
            made.append(answer if drawn is kept else answer.bare)
            arm.late_builds += arm.subject.builds.new > built
            built = arm.subject.builds.new
            if arm.late_builds >= LATE_BUILDS:
                why = f"{LATE_BUILDS} calls built new libraries. Build every library when the file is loaded."
                raise Fault(Status.RUNTIME_ERROR, why)
        if warm:
            clocked, written = arm.subject.warm(sets[-1].packed)
            arm.warm_ms += [clocked.device_ms] if clocked.device_ms else []
            made[-1] = replace(made[-1], written=made[-1].written.also(written))
        return made
    return []


def _as_round(calls: Mapping[str, Sequence[Answer]], cohort: Cohort) -> Round:
    """Returns the Round with the times of the calls, for an arm with several calls their medians.

    A call is exposed if it was not yet enqueued when the hold ended: its time may contain the launch gap. Exposed calls
    do not count, unless more than half of the calls of an arm were exposed. Then they count, and the round is rejected,
    but not for an arm that is always exposed (`Patience.waits`). The time of a call is the one by the device's clock.
    The judge's time is used for a call whose device time is missing or too short to be real.
    """
    exposed = {n: 2 * sum(answer.exposed for answer in made) > len(made) for n, made in calls.items()}
    counted = {n: [a for a in made if exposed[n] or not a.exposed] for n, made in calls.items()}
    reported = {n: median([a.clocked.device_ms or 0.0 for a in made]) for n, made in counted.items()}
    brackets = {n: median([a.timed.bracket_ms for a in made]) for n, made in counted.items()}
    clocked = {n for n, ms in reported.items() if ms >= cohort.device.policy.least_device_ms}
    leaking = [arm.name for arm in cohort.arms if arm.name in calls and arm.patience.update(exposed[arm.name])]
    rejected = f"the launch gap of {', '.join(sorted(leaking))} was not hidden" if leaking else None
    return Round(
        {n: reported[n] if n in clocked else brackets[n] for n in calls},
        tuple(calls),
        rejected,
        {n: brackets[n] for n in calls if n in clocked},
        copied=any(answer.timed.copied for made in calls.values() for answer in made),
    )


def _audit(
    cohort: Cohort,
    running: Mapping[str, Arm],
    answers: Mapping[str, Answer],
    reference: Reference,
    right: Callable[[], tuple[Any, Expectation]],
    rng: random.Random,
) -> None:
    """Compares outputs of candidates in one round with the right answer. A wrong output sets the `fault` of its arm.

    What the calls of an arm in this round wrote to inputs or beside them is compared, too (`compare`).
    If the wrong output may come from kernels that run too early (`_may_run_early`), `Arm.unordered` is set instead.
    `right` computes the right answer: the nesting of its outputs, and the Expectation of its tensors. The device's
    policy says which outputs are compared. None is compared if the answer does not decide (`Reference.decides`).
    """
    audits = cohort.device.policy.audits
    first = len(cohort.rounds) < audits.rounds or cohort.audits_s < audits.seconds
    every = first or cohort.audits_s <= audits.time_share * cohort.calls_s
    began = time.monotonic()
    chosen = [n for n in answers if not running[n].trusted and (every or rng.random() < audits.share)]
    if not chosen:
        return
    structure, expectation = right()
    for name in chosen if reference.decides(expectation) else ():
        cohort.audits += 1
        check = compare(answers[name], structure, expectation)
        if check.status is Status.MUTATED_INPUT:
            running[name].fault = Fault(check.status, f"A timed call wrote where it must not. {check.detail}")
        elif not check.passed and _may_run_early(cohort, running[name]):
            running[name].unordered = True
        elif not check.passed:
            running[name].fault = Fault(check.status, f"The output of a timed call is wrong: {check.detail}")
    cohort.audits_s += time.monotonic() - began


def _may_run_early(cohort: Cohort, arm: Arm) -> bool:
    """Returns whether a wrong output may come from kernels that run before the inputs are there.

    Kernels on a stream that does not wait for the stream of the inputs are not held back. Such a candidate is right if
    its inputs are there before the call, so its worker then waits for them on the host. The judge looks for such
    candidates during warm-up only.
    """
    return cohort.device.policy.works_behind and not cohort.rounds and not arm.unordered


@phase("new processes")
def _replace_processes(cohort: Cohort, reference: Reference) -> None:
    """Replaces the worker processes of "torch" and of the candidates without a fault, and calls each new process once.

    An arm gets a fault if its new process cannot be started or if the call fails.
    """
    arms = [arm for arm in cohort.arms if arm.fault is None and (not arm.trusted or arm.name == BASELINE)]
    with ThreadPoolExecutor(len(arms)) as pool:
        list(pool.map(lambda arm: arm.model.close(), arms))  # a process that used a GPU takes a while to end
    _start_processes(cohort, reference)
    for arm in arms:
        arm.processes += arm.fault is None


@phase("new processes")
def _start_processes(cohort: Cohort, reference: Reference) -> None:
    """Starts a worker process for each arm without one. Calls each process that has not been called since its `make`.

    On a GPU, such a call loads kernels, gets memory and may compile. In a timed call the device would not go on while
    it is held, and the call would have to wait until the end of the hold. An arm gets a fault if its process cannot be
    started or if the call fails.
    """
    calls = cohort.device.policy.works_behind
    arms = [
        arm
        for arm in cohort.arms
        if arm.fault is None and not (arm.model.is_alive and (arm.subject.was_called or not calls))
    ]
    if not arms:
        return
    drawn = draw(reference) if calls else None
    # Large inputs of several arms would not fit into the device's memory.
    calling = BoundedSemaphore(1 if drawn and drawn.packed.size > _LARGE_BYTES else len(arms))

    def called(subject: Subject) -> None:
        if drawn is not None:
            with calling:
                # Models that compile in their first call do so at the same time here, so the time limit is longer.
                subject.call(drawn.packed, patience=len(arms))
                subject.release_large()

    def started(arm: Arm) -> None:
        if arm.model.is_alive:
            called(arm.subject)
        else:
            arm.model.restart(called)

    arms.sort(key=lambda arm: arm.name != BASELINE)
    pool = ThreadPoolExecutor(len(arms))
    try:
        # The baseline "torch" starts first, before candidates can take the device memory that it needs.
        for side_by_side in (arms[:1], arms[1:]):
            for arm, start in [(arm, pool.submit(started, arm)) for arm in side_by_side]:
                with asking(arm):
                    until_done([start])
                    start.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interruption does not wait for processes that are starting


def _replay_short_calls(cohort: Cohort, reference: Reference) -> None:
    """Replays the calls of arms with short median times as CUDA graphs. Stores the results in `Arm.steady`.

    The times are only displayed, so a call that cannot be replayed is not a fault of the arm.
    """

    def typical_ms(arm: Arm) -> float:
        return median([r.samples_ms[arm.name] for r in cohort.rounds if arm.name in r.samples_ms] or [1.0])

    short = [
        arm for arm in cohort.arms if arm.fault is None and typical_ms(arm) < cohort.device.policy.replayed_below_ms
    ]
    if not short:
        return
    drawn = draw(reference)
    for arm in short:
        with asking(arm):
            arm.subject.call(drawn.packed, keep=True)
            arm.steady = _replayed(arm.subject)


def _replayed(subject: Subject) -> Steady | str:
    try:
        return subject.steady() or "the worker reported no times"
    except (Fault, Refused) as reason:
        return f"the call cannot be captured as a graph: {reason}"
