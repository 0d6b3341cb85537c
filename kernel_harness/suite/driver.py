"""The driver of a suite: it sends tasks to evaluator processes, and stores each verdict as soon as it arrives.

The driver has one thread. It loads no problem and uses no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from kernel_harness.core.errors import UserError
from kernel_harness.core.status import Status
from kernel_harness.results import record
from kernel_harness.session.settings import Settings
from kernel_harness.suite import entry
from kernel_harness.suite.backlog import Backlog
from kernel_harness.suite.cluster import Cluster, Dispatching, RayDispatcher
from kernel_harness.suite.collection import Collection, Task
from kernel_harness.suite.dispatcher import Broken, DeviceKnown, Dispatcher, Event, NoVerdict, Staff, Verdict
from kernel_harness.suite.entry import Entry
from kernel_harness.suite.journal import Facts, SuiteJournal
from kernel_harness.suite.plan import TaskId, check_settings, plan, recorded_settings, shared
from kernel_harness.suite.workplace import Workplace


class Observer(Protocol):
    """An object that is told what the driver does, for example to show the progress."""

    def began(self, done: Sequence[Entry]) -> None:
        """Receives the entries that are stored already, before the first candidate is judged."""

    def finished(self, entries: Sequence[Entry]) -> None:
        """Receives new entries, after they have been stored."""

    def unusable(self, problem: str, reason: str) -> None:
        """Receives the name of a problem that cannot be used. The problem's candidates without a verdict get none."""

    def tick(self) -> None:
        """Is called at least every second."""


@dataclass(frozen=True)
class Request:
    """A suite that is to be judged: its problems and tasks, the settings for all tasks, and the evaluators (`staff`).

    The evaluators are on this machine (Staff) or on a Ray cluster (Cluster).
    """

    collection: Collection
    settings: Settings
    staff: Staff | Cluster


class Driver:
    """Judges the tasks of a suite that have no verdict yet, and stores each verdict in a journal.

    `unusable` has the reason for each problem that could not be used, by the problem's name.
    Creating a Driver raises UserError if the journal has verdicts of other settings.
    """

    def __init__(self, request: Request, journal: SuiteJournal, observer: Observer) -> None:
        self._request, self._journal, self._observer = request, journal, observer
        self._run = record.new_run_id()
        self._facts = journal.facts()
        if self._facts is not None:
            check_settings(self._facts, request.settings, journal)
        self._keys: dict[TaskId, str] = {}
        self._backlog = Backlog((), {})
        self._with_baselines: set[tuple[str, str]] = set()
        self.unusable: dict[str, str] = {}

    def run(self) -> None:
        """Judges every task without a verdict. Returns when each has one or is of a problem that cannot be used.

        At an exception, such as KeyboardInterrupt, all evaluators are ended; the verdicts so far are stored.
        Raises EnvironmentLacking if this machine cannot judge candidates, and UserError if another process judges this
        suite or if its verdicts are of another device.
        """
        with self._journal.exclusive(), Workplace() as workplace:
            if self._facts is not None:
                self._plan(self._facts)
                if not self._backlog:
                    return
            settings = self._request.settings
            if self._facts is not None:
                settings = replace(settings, seed=self._facts.seed)
            with self._dispatcher(settings, workplace) as dispatcher:
                while self._facts is None or self._backlog or dispatcher.busy:
                    for event in dispatcher.step(self._backlog):
                        self._handle(event)
                    self._observer.tick()
                dispatcher.finish()

    def _dispatcher(self, settings: Settings, workplace: Workplace) -> AbstractContextManager[Dispatching]:
        hidden = [self._journal.folder, *(problem.path for problem in self._request.collection.problems)]
        staff = self._request.staff
        if isinstance(staff, Cluster):
            return RayDispatcher(staff, settings, hidden)
        return Dispatcher(staff, settings, hidden, workplace)

    def _plan(self, facts: Facts) -> None:
        found = plan(self._request.collection.tasks, facts, self._journal)
        self._keys = dict(found.keys)
        self._backlog = Backlog(found.left, found.keys)
        self._observer.began(found.done)

    def _handle(self, event: Event) -> None:
        match event:
            case DeviceKnown(label, device):
                self._check_device(label, device)
            case Verdict():
                self._store(event)
            case NoVerdict(task, reason):
                self._drop(task.problem.name, reason)
            case Broken(task, reason):
                self._finish(task, self._crashed(task, reason))

    def _check_device(self, label: str, device: str) -> None:
        """Stores the facts of a new suite and plans its tasks: only a ready evaluator knows the name of the device.

        Raises UserError if the suite's facts name another device than `label`.
        """
        if self._facts is None:
            settings = self._request.settings
            self._facts = Facts(label, device, settings.seed, record.now(), recorded_settings(settings))
            self._journal.begin(self._facts)
            self._plan(self._facts)
        elif self._facts.label != label:
            raise UserError(
                f"the suite in {self._journal.folder} is for {self._facts.device}, but an evaluator has {device}; "
                "choose another --name, or GPUs of one type with --gpus or --gpu-type"
            )

    def _store(self, verdict: Verdict) -> None:
        """Stores the full results (a baseline's once for each problem), then a line for each task with the same key."""
        assert self._facts is not None
        task = verdict.task
        own, *baselines = (replace(record.from_line(line), run=self._run) for line in verdict.lines)
        details = self._journal.details(task.problem.name, self._facts.label)
        details.check_writable()
        for baseline in baselines:
            if (task.problem.name, baseline.kernel) not in self._with_baselines:
                self._with_baselines.add((task.problem.name, baseline.kernel))
                details.append(baseline)
        details.append(own)
        judged = entry.of_result(task, self._keys[task.id], own, verdict.seconds)
        self._finish(task, replace(judged, phases_s=verdict.phases_s))

    def _finish(self, task: Task, own: Entry) -> None:
        entries = [own, *(shared(other, own) for other in self._backlog.sharing(task)[1:])]
        self._journal.append(entries)
        self._observer.finished(entries)

    def _drop(self, problem: str, reason: str) -> None:
        self._backlog.drop(problem)
        if problem not in self.unusable:
            self.unusable[problem] = reason
            self._observer.unusable(problem, reason)

    def _crashed(self, task: Task, reason: str) -> Entry:
        return Entry(
            task.problem.name, task.candidate.name, self._keys[task.id], task.candidate.sha256, Status.CRASHED, reason,
            run=self._run, measured_at=record.now(),
        )  # fmt: skip
