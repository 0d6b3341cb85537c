"""Judges the candidates of a suite that have no verdict yet, and stores each verdict as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from kernel_harness.core.errors import UserError
from kernel_harness.problem.errors import ProblemError
from kernel_harness.problem.problem import shape_text
from kernel_harness.results import record
from kernel_harness.session.settings import Settings
from kernel_harness.suite.collection import Collection
from kernel_harness.suite.device_worker import Ready, Task, Verdict
from kernel_harness.suite.scheduler import Scheduler, results
from kernel_harness.suite.store import Entry, Facts, SuiteStore

Workers = Callable[[Settings, Sequence[Path]], AbstractContextManager[Scheduler]]
"""A function that returns a context with a Scheduler, for the settings and the paths that no candidate may read."""


class Observer(Protocol):
    """An object that is told what a suite does, for example to show the progress."""

    def began(self, done: Sequence[Entry]) -> None:
        """Receives the entries that are stored already, before the first candidate is judged."""

    def finished(self, entries: Sequence[Entry]) -> None:
        """Receives new entries, after they have been stored."""

    def unusable(self, problem: str, reason: str) -> None:
        """Receives the name of a problem that cannot be used. The problem's candidates without a verdict get none."""


class Suite:
    """The tasks of `collection`, whose verdicts are in `store`.

    `workers` is `LocalScheduler` or `ray_cluster.on_cluster`, with their first arguments. Creating a Suite raises
    UserError if `store` has verdicts of other settings.
    """

    def __init__(
        self, collection: Collection, settings: Settings, workers: Workers, store: SuiteStore, observer: Observer
    ) -> None:
        self._collection, self._settings, self._workers = collection, settings, workers
        self._store, self._observer = store, observer
        self._run = record.new_run_id()
        self._with_baselines: set[tuple[str, str]] = set()
        self._unusable: set[str] = set()
        if facts := store.facts():
            now = recorded_settings(settings)
            names = dict.fromkeys((*facts.settings, *now))
            pairs = [(name, facts.settings.get(name), now.get(name)) for name in names]
            other = [f"{name} was {was} and is {new}" for name, was, new in pairs if was != new]
            if other:
                raise UserError(
                    f"the suite in {store.folder} has other settings: {', '.join(other)}; choose another --name"
                )

    def run(self) -> None:
        """Judges every task without a verdict. Returns when each has one or is of a problem that cannot be used.

        At an exception, such as KeyboardInterrupt, all device workers are ended; the verdicts so far are stored.
        Raises EnvironmentLacking if this machine cannot judge candidates, and UserError if another process judges this
        suite or if its verdicts are of another device.
        """
        with self._store.exclusive():
            facts = self._store.facts()
            left = self._left(facts) if facts else None
            if left == {}:
                return
            settings = replace(self._settings, seed=facts.seed) if facts else self._settings
            hidden = [self._store.folder, *(problem.path for problem in self._collection.problems)]
            with self._workers(settings, hidden) as scheduler:
                device = scheduler.first.result()  # only a device worker knows the name of its device
                facts = facts or self._begin(device)
                self._check_devices(facts, scheduler)
                groups = self._left(facts) if left is None else left
                judged = scheduler.submit(sharing[0] for sharing in groups.values())
                waiting = dict(zip(judged, groups.items(), strict=True))
                del judged  # a verdict is not kept for longer than it takes to store it
                for future in as_completed(waiting):
                    self._check_devices(facts, scheduler)
                    key, sharing = waiting.pop(future)
                    try:
                        self._keep(facts, key, sharing, future.result())
                    except ProblemError as error:
                        problem = sharing[0].problem.name
                        if problem not in self._unusable:
                            self._unusable.add(problem)
                            self._observer.unusable(problem, str(error))

    def _begin(self, device: Ready) -> Facts:
        settings = self._settings
        facts = Facts(device.label, device.device, settings.seed, record.now(), recorded_settings(settings))
        self._store.begin(facts)
        return facts

    def _check_devices(self, facts: Facts, scheduler: Scheduler) -> None:
        """Raises UserError if a device worker has another device than the one that the suite's verdicts are of."""
        for each in tuple(scheduler.devices):
            if each.label != facts.label:
                raise UserError(
                    f"the suite in {self._store.folder} is for {facts.device}, but a device worker has {each.device}; "
                    "choose another --name, or GPUs of one type with --gpus or --gpu-type"
                )

    def _left(self, facts: Facts) -> dict[str, list[Task]]:
        """Returns the tasks without a verdict, by their key: those of one key share the verdict on the first of them.

        A task has the verdict of a stored entry with its key; such a verdict is stored for it, too. A full result
        without an entry does not count, because it does not say of which problem file it is.
        """
        stored = {one.id: one for one in self._store.read()}
        keys = {task.id: facts.key(task) for task in self._collection.tasks}
        done = [one for id, key in keys.items() if (one := stored.get(id)) and one.key == key]
        judged = {one.key: one for one in done if one.same_as is None}
        known, new, left = {one.id for one in done}, list[Entry](), dict[str, list[Task]]()
        for task in self._collection.tasks:
            key = keys[task.id]
            if task.id not in known and key in judged:
                new.append(judged[key].shared_with(task))
            elif task.id not in known:
                left.setdefault(key, []).append(task)
        self._store.append(new)
        self._observer.began([*done, *new])
        return left

    def _keep(self, facts: Facts, key: str, sharing: Sequence[Task], verdict: Verdict) -> None:
        """Stores the full results (a baseline's once for each problem), then an entry for each task of the same key."""
        task = sharing[0]
        own, *baselines = (replace(result, run=self._run) for result in results(task, verdict))
        if not verdict.crashed:
            details = self._store.details(task.problem.name, facts.label)
            details.check_writable()
            for baseline in baselines:
                if (task.problem.name, baseline.kernel) not in self._with_baselines:
                    self._with_baselines.add((task.problem.name, baseline.kernel))
                    details.append(baseline)
            details.append(own)
        entry = Entry.of(task, key, own, verdict)
        entries = [entry, *(entry.shared_with(other) for other in sharing[1:])]
        self._store.append(entries)
        self._observer.finished(entries)


def recorded_settings(settings: Settings) -> dict[str, Any]:
    """Returns those settings, by name, that may change a verdict or a time. The seed is not one of them.

    `time_shapes` and `require_own_kernels` are among them only if the user named some.
    """
    percent = settings.require_own_kernels
    words = [str(each) if isinstance(each, int) else shape_text(each) for each in settings.time_shapes]
    return {
        **({"time_shapes": words} if words else {}),
        **({"require_own_kernels": percent} if percent else {}),
        "baseline": settings.baseline, "budget_s": settings.budget_s, "quick": settings.quick,
        "precision": settings.precision and str(settings.precision), "call_s": settings.limits.call_s,
        "build_s": settings.limits.build_s,
    }  # fmt: skip
