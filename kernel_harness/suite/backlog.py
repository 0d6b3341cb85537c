"""The tasks of a suite that wait for an evaluator: which evaluator gets which task, and which tasks share a verdict."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from kernel_harness.suite.collection import Task


class Backlog:
    """The tasks of a suite that wait for an evaluator, and the tasks that get their verdict from another task.

    Tasks with an equal key (`entry.key`) share one verdict: only the first of them waits for an evaluator, and its
    verdict counts for all. Each evaluator gets the tasks of one problem before those of another, so that baselines are
    started and right answers computed as rarely as possible.
    """

    def __init__(self, tasks: Sequence[Task], keys: Mapping[tuple[str, str], str]) -> None:
        """`tasks` are those without a verdict, ordered by problem; `keys` has the key of each task by its id."""
        self._sharing: dict[str, list[Task]] = {}
        self._keys = keys
        self._pending: dict[str, deque[Task]] = {}
        self._problem_of: dict[int, str] = {}
        for task in tasks:
            group = self._sharing.setdefault(keys[task.id], [])
            group.append(task)
            if len(group) == 1:
                self.add(task)

    def add(self, task: Task) -> None:
        """Adds a task that waits, after those of its problem."""
        self._pending.setdefault(task.problem.name, deque()).append(task)

    def __len__(self) -> int:
        """Returns the number of tasks that wait for an evaluator, without those that get another task's verdict."""
        return sum(map(len, self._pending.values()))

    def take(self, evaluator: int) -> Task | None:
        """Removes and returns the next task for the evaluator with the number `evaluator`; None if no task waits.

        An evaluator works on the problem of the task that it got last. If no task of this problem waits, it gets a task
        of the first waiting problem that no evaluator works on. If there is no such problem, it gets a task of the
        problem with the most waiting tasks.
        """
        waiting = {name: tasks for name, tasks in self._pending.items() if tasks}
        if not waiting:
            return None
        name = self._problem_of.get(evaluator)
        if name not in waiting:
            taken = set(self._problem_of.values())
            name = next((n for n in waiting if n not in taken), max(waiting, key=lambda n: len(waiting[n])))
        self._problem_of[evaluator] = name
        return waiting[name].popleft()

    def put_back(self, task: Task, *, last: bool = False) -> None:
        """Makes a task wait again that `take` returned: as the first of its problem, or as the last if `last`.

        Several tasks keep their order if the one that was taken last is put back first.
        """
        pending = self._pending.setdefault(task.problem.name, deque())
        pending.append(task) if last else pending.appendleft(task)

    def release(self, evaluator: int) -> None:
        """Forgets which problem an evaluator worked on, because the evaluator has ended."""
        self._problem_of.pop(evaluator, None)

    def sharing(self, task: Task) -> Sequence[Task]:
        """Returns the tasks that get the verdict of `task`, a task that `take` returned. The first is `task` itself."""
        return self._sharing[self._keys[task.id]]

    def drop(self, problem: str) -> None:
        """Removes the tasks of a problem that cannot be used."""
        self._pending.pop(problem, None)
