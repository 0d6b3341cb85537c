"""Gives tasks to evaluator processes, and replaces evaluators that have ended. Neither stores nor prints anything."""

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

    `devices` has the name of a device for each evaluator process. `ahead` is the number of candidates that an evaluator
    builds while it judges one. `threads` is the number of OpenMP threads of an evaluator; None leaves it to OpenMP.
    """

    devices: tuple[str, ...]
    ahead: int
    threads: int | None = None


@dataclass(frozen=True)
class DeviceKnown:
    """The event that an evaluator is ready. `label` is the folder of the device's results, `device` its own name."""

    label: str
    device: str


@dataclass(frozen=True)
class Verdict:
    """The event that a task is judged. The fields are those of messages.Judged."""

    task: Task
    lines: tuple[str, ...]
    seconds: float
    phases_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NoVerdict:
    """The event that a task cannot be judged because its problem cannot be used."""

    task: Task
    reason: str


@dataclass(frozen=True)
class Broken:
    """The event that evaluators have ended again and again while they judged a task, the last time only this task."""

    task: Task
    reason: str


Event = DeviceKnown | Verdict | NoVerdict | Broken


class Dispatcher:
    """Evaluator processes that work on a backlog. A context manager; at its end, all of them have ended.

    All methods except `wake` are for one thread.
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
        """Makes `step` return soon. Any thread may call this method, also after the end."""
        with self._alarm_lock, suppress(BlockingIOError):  # a full pipe wakes as well
            if self._alarm_in:
                os.write(self._alarm_in[0], b"x")

    def step(self, backlog: Backlog) -> list[Event]:
        """Gives tasks to evaluators that have room for them, waits a moment for messages, and returns what happened.

        Raises EnvironmentLacking if this machine cannot judge candidates.
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
        """Tells the evaluators, which have no tasks, to end, and waits for them."""
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
        """Sends tasks to an evaluator until it has one to judge and `ahead` more to build.

        A candidate that another evaluator ended with is sent alone, so that it can end no other candidate's turn.
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
        """Puts the tasks of an evaluator that has ended back. The one whose checks had begun may be the cause.

        Raises EnvironmentLacking if too many evaluators have ended before they judged anything.
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
            raise EnvironmentLacking(f"{_MOST_FAILED_STARTS} evaluators ended before they judged. {words}")
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
