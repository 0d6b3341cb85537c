"""Gives tasks to evaluator processes, and replaces evaluators that have ended. Stores and prints nothing."""

from __future__ import annotations

import itertools
import logging
import os
import selectors
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.session.settings import Settings
from kernel_harness.suite import evaluator
from kernel_harness.suite.backlog import Backlog
from kernel_harness.suite.collection import Task
from kernel_harness.suite.handle import Evaluator
from kernel_harness.suite.messages import Began, Judged, Lacking, Message, Ready, Unusable
from kernel_harness.suite.workplace import Workplace

_LOG = logging.getLogger(__name__)
_TICK_S = 0.5
# The dispatcher gives up after _MOST_FAILED_STARTS evaluators in a row that ended before they judged a candidate.
_MOST_FAILED_STARTS = 3
# A candidate is broken after _MOST_ATTEMPTS evaluators that ended while they judged it.
_MOST_ATTEMPTS = 2
# An evaluator that says nothing for this time while it judges a candidate is killed. Each step of a candidate has its
# own limit, so only the judge's own work, such as a reference that never returns, reaches this one.
_LONGEST_SILENCE_S = 3600.0


@dataclass(frozen=True)
class Staff:
    """The evaluators of a dispatcher.

    `devices` has the name of a device, such as `cuda:0` or `cpu`, for each evaluator process. `ahead` is the most
    candidates that an evaluator has beside the one that it judges; it builds them meanwhile. `threads` is the number of
    OpenMP threads of an evaluator if the environment does not set OMP_NUM_THREADS; None leaves the number to OpenMP.
    """

    devices: tuple[str, ...]
    ahead: int
    threads: int | None = None


@dataclass(frozen=True)
class DeviceKnown:
    """The event that an evaluator is ready to judge.

    `label` is the name of the folder for the device's results, `device` the device's own name, such as `NVIDIA H200`.
    """

    label: str
    device: str


@dataclass(frozen=True)
class Verdict:
    """The event that a task has been judged.

    `lines` has the candidate's result, then the results of the baselines that were timed beside it, each as a line of
    JSON (`results.record`). `seconds` is the time from the beginning of the checks to the verdict. `phases_s` has the
    seconds of each phase of the evaluator's work since its last verdict.
    """

    task: Task
    lines: tuple[str, ...]
    seconds: float
    phases_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NoVerdict:
    """The event that a task cannot be judged because its problem cannot be used. `reason` says why."""

    task: Task
    reason: str


@dataclass(frozen=True)
class Broken:
    """The event that a task has no result because its evaluator has ended, also after the task was tried again.

    `reason` says how often and how. The verdict on the candidate is CRASHED.
    """

    task: Task
    reason: str


Event = DeviceKnown | Verdict | NoVerdict | Broken


class Dispatcher:
    """Evaluator processes that judge the tasks of a backlog. A context manager, which ends all of them at its end.

    Only one thread may use a Dispatcher, except for the method `wake`.
    """

    def __init__(self, staff: Staff, settings: Settings, hidden: Sequence[Path], workplace: Workplace) -> None:
        self._staff, self._workplace = staff, workplace
        self._parameters = evaluator.parameters(settings, hidden)
        self._missing = list(staff.devices)
        self._numbers = itertools.count()
        self._attempts: dict[tuple[str, str], int] = {}
        self._failed_starts = 0
        self._evaluators: list[Evaluator] = []
        self._selector = selectors.DefaultSelector()
        self._alarm, alarm_in = os.pipe()
        self._alarm_lock, self._alarm_in = threading.Lock(), [alarm_in]  # empty after the end
        for descriptor in (self._alarm, alarm_in):
            os.set_blocking(descriptor, False)
        self._selector.register(self._alarm, selectors.EVENT_READ)

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._evaluators:
            each.interrupt()
        for each in self._evaluators:
            each.close()
        self._selector.close()
        with self._alarm_lock:
            os.close(self._alarm_in.pop())
        os.close(self._alarm)

    @property
    def busy(self) -> bool:
        """Whether an evaluator has an unfinished task."""
        return any(each.in_flight for each in self._evaluators)

    def wake(self) -> None:
        """Makes `step` return soon. Any thread may call this method, also after the end of the context."""
        with self._alarm_lock, suppress(BlockingIOError):  # a full pipe wakes as well
            if self._alarm_in:
                os.write(self._alarm_in[0], b"x")

    def step(self, backlog: Backlog) -> list[Event]:
        """Gives waiting tasks to evaluators that have room, waits at most 0.5 s for messages, and returns the events.

        Missing evaluators are started first. An evaluator has room if it has at most `ahead` unfinished tasks. Raises
        EnvironmentLacking if this machine cannot judge candidates.
        """
        while self._missing:
            self._start(self._missing.pop(0))
        for each in self._evaluators:
            self._fill(each, backlog)
            if each.in_flight and time.monotonic() > each.heard_at + _LONGEST_SILENCE_S:
                each.kill()
        events: list[Event] = []
        for key, _ in self._selector.select(_TICK_S):
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._alarm, 1 << 16)
                continue
            received = key.data.receive()
            events += self._heard(key.data, received) if received is not None else self._buried(key.data, backlog)
        return events

    def finish(self) -> None:
        """Tells the evaluators, which have no tasks, to end, and waits until they have ended."""
        for each in self._evaluators:
            each.finish()
        for each in self._evaluators:
            each.close()
        self._evaluators.clear()

    def _start(self, device: str) -> None:
        started = Evaluator(next(self._numbers), device, self._parameters, self._workplace, self._staff.threads)
        self._evaluators.append(started)
        self._selector.register(started.socket, selectors.EVENT_READ, started)

    def _fill(self, each: Evaluator, backlog: Backlog) -> None:
        """Sends waiting tasks to an evaluator that is ready, until it has one to judge and `ahead` more to build.

        A candidate whose evaluator ended while it was judged is sent alone: if it ends this evaluator as well, no other
        candidate is affected.
        """
        while backlog and each.ready and len(each.in_flight) <= self._staff.ahead:
            if any(task.id in self._attempts for task in each.in_flight.values()):
                return
            task = backlog.take(each.number)
            if task is None:
                return
            if task.id in self._attempts and each.in_flight:
                backlog.put_back(task)
                return
            each.send(task)

    def _heard(self, sender: Evaluator, received: Sequence[Message]) -> list[Event]:
        events: list[Event] = []
        for message in received:
            match message:
                case Ready(label, device):
                    sender.ready = True
                    events.append(DeviceKnown(label, device))
                case Began(number):
                    sender.began = number
                case Judged(number, lines, seconds, phases_s):
                    self._failed_starts = 0
                    sender.began = None
                    events.append(Verdict(self._settled(sender, number), lines, seconds, phases_s))
                case Unusable(number, reason):
                    sender.began = None
                    events.append(NoVerdict(self._settled(sender, number), reason))
                case Lacking(reason):
                    raise EnvironmentLacking(reason)
        return events

    def _settled(self, sender: Evaluator, number: int) -> Task:
        task = sender.in_flight.pop(number)
        self._attempts.pop(task.id, None)
        return task

    def _buried(self, dead: Evaluator, backlog: Backlog) -> list[Event]:
        """Puts the tasks of `dead`, an evaluator that has ended, back into the backlog. Returns the events of its end.

        They become the first of their problems. `step` then starts another evaluator. If the checks of a candidate
        had begun, this candidate may be the cause. The first time, its task becomes the last of its problem. The second
        time (_MOST_ATTEMPTS), its task is not put back, and the list has the event Broken. Otherwise the list is empty.
        Raises EnvironmentLacking if, since the last verdict of any evaluator, _MOST_FAILED_STARTS evaluators have ended
        while they checked no candidate.
        """
        words = dead.last_words()
        _LOG.warning("%s", words)
        suspect = None if dead.began is None else dead.in_flight.pop(dead.began, None)
        backlog.release(dead.number)
        for task in reversed(dead.in_flight.values()):
            backlog.put_back(task)
        self._selector.unregister(dead.socket)
        self._evaluators.remove(dead)
        dead.close()
        self._missing.append(dead.device)
        if suspect is not None:
            return self._suspected(suspect, words, backlog)
        self._failed_starts += 1
        if self._failed_starts >= _MOST_FAILED_STARTS:
            raise EnvironmentLacking(f"{_MOST_FAILED_STARTS} evaluators ended without a verdict. The last one: {words}")
        return []

    def _suspected(self, task: Task, words: str, backlog: Backlog) -> list[Event]:
        attempts = self._attempts.get(task.id, 0) + 1
        self._attempts[task.id] = attempts
        if attempts < _MOST_ATTEMPTS:
            backlog.put_back(task, last=True)
            return []
        del self._attempts[task.id]
        reason = f"The evaluator ended {attempts} times while it judged this candidate, the last time alone."
        return [Broken(task, f"{reason} {words[-200:]}")]
