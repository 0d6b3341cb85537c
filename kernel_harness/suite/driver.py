"""The driver of a suite: it gives tasks to evaluator processes, and stores their verdicts as they come.

The driver has one thread. It loads no problem and uses no device.
"""

from __future__ import annotations

import itertools
import logging
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.status import Status
from kernel_harness.results import record
from kernel_harness.session.settings import Settings
from kernel_harness.suite import entry, evaluator
from kernel_harness.suite.backlog import Backlog
from kernel_harness.suite.collection import Collection, Task
from kernel_harness.suite.entry import Entry
from kernel_harness.suite.handle import Evaluator
from kernel_harness.suite.journal import Facts, SuiteJournal
from kernel_harness.suite.messages import Began, Judged, Lacking, Message, Ready, Unusable
from kernel_harness.suite.plan import TaskId, check_settings, plan, recorded_settings, shared
from kernel_harness.suite.workplace import Workplace

_LOG = logging.getLogger(__name__)
_TICK_S = 0.5
# After so many evaluators in a row that ended before they judged a candidate, the suite ends.
_MOST_FAILED_STARTS = 3
# After so many evaluators that ended while they judged it, a candidate is CRASHED.
_MOST_ATTEMPTS = 2
# An evaluator that says nothing for this time while it judges a candidate is killed. Each step of a candidate has its
# own limit, so only the judge's own work, such as a reference that never returns, reaches this one.
_LONGEST_SILENCE_S = 3600.0


class Observer(Protocol):
    """An object that is told what the driver does, for example to show the progress."""

    def began(self, done: Sequence[Entry]) -> None:
        """Receives the entries that are stored already, before the first candidate is judged."""

    def finished(self, entries: Sequence[Entry]) -> None:
        """Receives new entries, after they have been stored."""

    def unusable(self, problem: str, reason: str) -> None:
        """Receives the news that a problem cannot be used, so that its other candidates get no verdict."""

    def tick(self) -> None:
        """Is called at least every second."""


@dataclass(frozen=True)
class Request:
    """A suite that is to be judged.

    `devices` has the name of a device for each evaluator process. `ahead` is the number of candidates that an evaluator
    builds while it judges one. `threads` is the number of OpenMP threads of an evaluator; None leaves it to OpenMP.
    """

    collection: Collection
    settings: Settings
    devices: tuple[str, ...]
    ahead: int
    threads: int | None = None


class Driver:
    """Judges the tasks of a suite that have no verdict yet, and stores each verdict in a journal.

    Creating a Driver raises UserError if the journal has verdicts of other settings.
    """

    def __init__(self, request: Request, journal: SuiteJournal, observer: Observer) -> None:
        self._request, self._journal, self._observer = request, journal, observer
        self._run = record.new_run_id()
        self._facts = journal.facts()
        if self._facts is not None:
            check_settings(self._facts, request.settings, journal)
        self._keys: dict[TaskId, str] = {}
        self._backlog: Backlog | None = None
        self._attempts: dict[TaskId, int] = {}
        self._with_baselines: set[tuple[str, str]] = set()
        self.unusable: dict[str, str] = {}

    def run(self) -> None:
        """Judges every task without a verdict. Returns when each has one or is of a problem that cannot be used.

        `unusable` then has these problems' names with the reason. At an exception, such as KeyboardInterrupt, all
        evaluators are ended; the verdicts so far are stored.
        Raises EnvironmentLacking if this machine cannot judge candidates, and UserError if another process judges this
        suite or if its verdicts are of another device.
        """
        with self._journal.exclusive(), Workplace() as workplace:
            if self._facts is not None:
                self._plan(self._facts)
            if self._backlog is not None and not self._backlog:
                return
            with _Pool(self._request, self._seed(), self._journal, workplace) as pool:
                while self._backlog is None or self._backlog or pool.busy:
                    pool.start_missing()
                    for each in pool.evaluators:
                        self._fill(each)
                    for each, received in pool.received():
                        self._hear(pool, each, received)
                    self._observer.tick()
                pool.finish()

    def _seed(self) -> int:
        return self._facts.seed if self._facts is not None else self._request.settings.seed

    def _plan(self, facts: Facts) -> None:
        found = plan(self._request.collection.tasks, facts, self._journal)
        self._keys = dict(found.keys)
        self._backlog = Backlog(found.left, found.keys)
        self._observer.began(found.done)

    def _hear(self, pool: _Pool, sender: Evaluator, received: Sequence[Message] | None) -> None:
        if received is None:
            self._bury(pool, sender)
        for message in received or ():
            match message:
                case Ready(label, device):
                    sender.ready = True
                    self._check_device(label, device)
                case Began(number):
                    sender.began = number
                case Judged(number, lines, seconds):
                    pool.failed_starts = 0
                    sender.began = None
                    self._store(sender.in_flight.pop(number), lines, seconds)
                case Unusable(number, reason):
                    self._drop(sender.in_flight.pop(number), reason)
                case Lacking(reason):
                    raise EnvironmentLacking(reason)

    def _check_device(self, label: str, device: str) -> None:
        """Plans the tasks when the first evaluator is ready; only an evaluator knows the name of the device.

        Raises UserError if the stored verdicts are of another device.
        """
        if self._facts is None:
            settings = self._request.settings
            self._facts = Facts(label, device, settings.seed, record.now(), recorded_settings(settings))
            self._journal.begin(self._facts)
            self._plan(self._facts)
        elif self._facts.label != label:
            raise UserError(
                f"the suite in {self._journal.folder} is of the device {self._facts.device}, and this is {device}; "
                "choose another --name"
            )

    def _fill(self, each: Evaluator) -> None:
        """Sends tasks to an evaluator until it has one to judge and `ahead` more to build.

        A candidate that another evaluator ended with is sent alone, so that it can end no other candidate's turn.
        """
        while self._backlog and each.ready and len(each.in_flight) <= self._request.ahead:
            if any(task.id in self._attempts for task in each.in_flight.values()):
                return
            task = self._backlog.take(each.number)
            if task is None:
                return
            if task.id in self._attempts and each.in_flight:
                self._backlog.put_back(task)
                return
            each.send(task)

    def _store(self, task: Task, lines: Sequence[str], seconds: float) -> None:
        """Stores the full results, and then the entries of the candidate and of those with the same source."""
        assert self._facts is not None
        own, *baselines = (replace(record.from_line(line), run=self._run) for line in lines)
        details = self._journal.details(task.problem.name, self._facts.label)
        details.check_writable()
        for baseline in baselines:
            if (task.problem.name, baseline.kernel) not in self._with_baselines:
                self._with_baselines.add((task.problem.name, baseline.kernel))
                details.append(baseline)
        details.append(own)  # last, see plan
        self._finish(task, entry.of_result(task, self._keys[task.id], own, seconds))

    def _finish(self, task: Task, own: Entry) -> None:
        assert self._backlog is not None
        entries = [own, *(shared(other, own) for other in self._backlog.sharing(task)[1:])]
        self._journal.append(entries)
        self._observer.finished(entries)

    def _drop(self, task: Task, reason: str) -> None:
        assert self._backlog is not None
        name = task.problem.name
        self._backlog.drop(name)
        if name not in self.unusable:
            self.unusable[name] = reason
            self._observer.unusable(name, reason)

    def _bury(self, pool: _Pool, dead: Evaluator) -> None:
        """Lets the tasks of an evaluator that has ended wait again.

        The one whose checks had begun may be the cause. After two such ends it is CRASHED.
        """
        words = dead.last_words()
        _LOG.warning("%s", words)
        suspect = dead.in_flight.pop(dead.began, None) if dead.began is not None else None
        if self._backlog is not None:
            self._backlog.release(dead.number)
            for task in reversed(dead.in_flight.values()):
                self._backlog.put_back(task)
            if suspect is not None:
                self._suspect(suspect, words)
        dead.in_flight.clear()
        pool.remove(dead)
        if suspect is None:
            pool.failed_starts += 1
            if pool.failed_starts >= _MOST_FAILED_STARTS:
                raise EnvironmentLacking(f"{_MOST_FAILED_STARTS} evaluators ended before they judged. {words}")

    def _suspect(self, task: Task, words: str) -> None:
        assert self._backlog is not None and self._facts is not None
        self._attempts[task.id] = self._attempts.get(task.id, 0) + 1
        if self._attempts[task.id] < _MOST_ATTEMPTS:
            self._backlog.put_back(task, last=True)
            return
        reason = f"The evaluator ended {_MOST_ATTEMPTS} times while it judged this candidate, the second time alone."
        own = Entry(
            task.problem.name, task.candidate.name, self._keys[task.id], task.candidate.sha256, Status.CRASHED,
            f"{reason} {words[-200:]}", run=self._run, measured_at=record.now(),
        )  # fmt: skip
        self._finish(task, own)


class _Pool:
    """The evaluator processes of a driver: one for each device of the request, replaced when they end.

    A context manager; at its end, all of them have ended.
    """

    def __init__(self, request: Request, seed: int, journal: SuiteJournal, workplace: Workplace) -> None:
        problems = {problem.name: problem.path for problem in request.collection.problems}
        settings = replace(request.settings, seed=seed)
        self._parameters = evaluator.parameters(settings, problems, [journal.folder, *problems.values()])
        self._request, self._workplace = request, workplace
        self._missing = list(request.devices)
        self._numbers = itertools.count()
        self._selector = selectors.DefaultSelector()
        self.evaluators: list[Evaluator] = []
        self.failed_starts = 0

    def __enter__(self) -> _Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.evaluators:
            each.interrupt()
        for each in self.evaluators:
            each.close()
        self._selector.close()

    @property
    def busy(self) -> bool:
        """Whether an evaluator has an unfinished task."""
        return any(each.in_flight for each in self.evaluators)

    def start_missing(self) -> None:
        """Starts an evaluator for each device that has none."""
        while self._missing:
            started = Evaluator(
                next(self._numbers), self._missing.pop(0), self._parameters, self._workplace, self._request.threads
            )
            self.evaluators.append(started)
            self._selector.register(started.socket, selectors.EVENT_READ, started)

    def received(self) -> list[tuple[Evaluator, list[Message] | None]]:
        """Waits a moment for messages. Returns them by evaluator, with None for an evaluator that has ended.

        Kills evaluators that have said nothing for too long.
        """
        for each in self.evaluators:
            if each.in_flight and time.monotonic() > each.heard_at + _LONGEST_SILENCE_S:
                each.kill()
        return [(key.data, key.data.receive()) for key, _ in self._selector.select(_TICK_S)]

    def remove(self, dead: Evaluator) -> None:
        """Forgets an evaluator that has ended. `start_missing` starts another for its device."""
        self._selector.unregister(dead.socket)
        self.evaluators.remove(dead)
        dead.close()
        self._missing.append(dead.device)

    def finish(self) -> None:
        """Tells all evaluators to end, and waits for them."""
        for each in self.evaluators:
            each.finish()
        for each in self.evaluators:
            each.close()
        self.evaluators.clear()
