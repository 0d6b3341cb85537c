"""Gives the tasks of a suite or a pool to device workers, and replaces device workers that have ended."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.status import Status
from kernel_harness.problem.errors import ProblemError
from kernel_harness.results.record import Result, from_line
from kernel_harness.session.settings import Settings
from kernel_harness.suite.allocation import Allocation
from kernel_harness.suite.device_worker import (
    Began,
    DeviceWorker,
    Lacking,
    Message,
    Ready,
    SuiteFolder,
    Task,
    Unusable,
    Verdict,
    Worker,
)

_LOG = logging.getLogger(__name__)
_TICK_S = 0.1
# The scheduler gives up after _MOST_FAILED_STARTS workers in a row that ended before they judged a candidate.
_MOST_FAILED_STARTS = 3
# A candidate is CRASHED after _MOST_ATTEMPTS workers that ended while they judged it.
_MOST_ATTEMPTS = 2
# A worker that says nothing for this time while it judges a candidate is killed. Each step of a candidate has its own
# limit, so only the judge's own work, such as a reference that never returns, reaches this one.
_LONGEST_SILENCE_S = 3600.0


class Queue:
    """The tasks that wait for a worker. Each worker gets the tasks of one problem before those of another.

    So baselines are started, and right answers computed, as rarely as possible.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Task]] = {}

    def __len__(self) -> int:
        """Returns the number of tasks that wait."""
        return sum(map(len, self._waiting.values()))

    def add(self, task: Task, *, first: bool = False) -> None:
        """Adds a task as the last of its problem, or as its first."""
        of_problem = self._waiting.setdefault(task.problem.name, deque())
        of_problem.appendleft(task) if first else of_problem.append(task)

    def take(self, own: str | None, taken: Collection[str | None]) -> Task | None:
        """Removes and returns the next task for a worker; None if no task waits.

        A worker goes on with its `own` problem, that of the task that it got last. If none of its tasks wait, the
        worker gets a task of the problem with the most waiting tasks: among the problems that are not in `taken`, those
        of all workers, or if there are none, among all. So the longest work begins first, and workers share what is
        left of the last problems.
        """
        waiting = {name: tasks for name, tasks in self._waiting.items() if tasks}
        if not waiting:
            return None
        if own not in waiting:
            own = max([each for each in waiting if each not in taken] or waiting, key=lambda each: len(waiting[each]))
        return waiting[own].popleft()

    def drop(self, problem: str) -> list[Task]:
        """Removes the waiting tasks of the problem of this name, and returns them."""
        return list(self._waiting.pop(problem, ()))


class Scheduler(Closing):
    """Workers, and a thread that gives them tasks. A context manager, which ends all workers at its end.

    `start` has a function for each worker that starts it; the thread calls it again when the worker has ended. `ahead`
    is the most tasks that a worker has beside the one that it judges; it builds them meanwhile.
    All methods are safe to call from several threads.
    """

    def __init__(self, start: Sequence[Callable[[], Worker]], ahead: int) -> None:
        self.first: Future[Ready] = Future()
        """The device of the first worker that is ready."""
        self.devices: set[Ready] = set()
        """The devices of all workers that have become ready."""
        self._ahead = ahead
        self._workers: dict[Worker, Callable[[], Worker]] = {}
        self._missing = list(start)
        self._lock = threading.Lock()
        self._queue = Queue()
        self._futures: dict[tuple[str, ...], Future[Verdict]] = {}
        self._attempts: dict[tuple[str, ...], int] = {}
        self._failed_starts = 0
        self._end: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, tasks: Iterable[Task]) -> list[Future[Verdict]]:
        """Adds tasks, whose ids must differ from those of all unfinished tasks. Returns the futures of their verdicts.

        A future raises ProblemError if the problem cannot be used, EnvironmentLacking if this machine cannot judge
        candidates, and UserError if the scheduler was closed before. `submit` raises the last two if they are known.
        """
        with self._lock:
            if self._end is not None:
                raise self._end
            added: list[Future[Verdict]] = []
            for task in tasks:
                self._futures[task.id] = Future()
                added.append(self._futures[task.id])
                self._queue.add(task)
            self._fill()
        return added

    def close(self) -> None:
        """Ends all workers. Futures without a verdict raise UserError. Safe to call twice."""
        with self._lock:
            self._end = self._end or UserError("the pool was closed")
        self._thread.join()

    def _work(self) -> None:
        try:
            while self._end is None:
                self._step()
        except BaseException as error:
            with self._lock:
                self._end = self._end or error
        for worker in self._workers:
            worker.interrupt()
        for worker in self._workers:
            worker.close()
        assert self._end is not None
        for future in self._futures.values():
            future.set_exception(self._end)
        if not self.first.done():
            self.first.set_exception(self._end)

    def _step(self) -> None:
        """Starts missing workers, and handles the messages of one moment, for which it waits at most 0.1 s."""
        while self._missing:
            start = self._missing.pop(0)
            worker = start()
            with self._lock:
                self._workers[worker] = start
        for worker in self._workers:
            if worker.in_flight and time.monotonic() > worker.heard_at + _LONGEST_SILENCE_S:
                worker.kill()
        of_connection = {worker.connection: worker for worker in self._workers}
        for connection in wait([*of_connection], _TICK_S):
            worker = of_connection[connection]  # type: ignore[index]
            message = worker.receive()
            how = worker.close() if message is None else ""
            with self._lock:
                if message is None:
                    self._replace(worker, how)
                else:
                    self._take(worker, message)
                self._fill()

    def _fill(self) -> None:
        """Sends waiting tasks to each worker that is ready, until it has one to judge and `ahead` more to build.

        When few tasks are left, a worker gets only its share of them ahead, but at least one. A candidate whose worker
        ended while it was judged is sent alone: if it ends this worker as well, no other candidate is affected.
        """
        for worker in self._workers:
            while worker.ready and len(worker.in_flight) <= self._ahead:
                share = max(1, len(self._queue) // len(self._workers))
                if len(worker.in_flight) > share or worker.in_flight.keys() & self._attempts.keys():
                    break
                task = self._queue.take(worker.problem, {each.problem for each in self._workers})
                if task is None:
                    break
                if task.id in self._attempts and worker.in_flight:
                    self._queue.add(task, first=True)
                    break
                worker.give(task)

    def _take(self, worker: Worker, message: Message) -> None:
        match message:
            case Ready():
                worker.ready = True
                self.devices.add(message)
                if not self.first.done():
                    self.first.set_result(message)
            case Began(task):
                worker.began = task
            case Verdict(task):
                self._failed_starts, worker.began = 0, None
                del worker.in_flight[task]
                self._settle(message)
            case Unusable(task, reason):
                worker.began = None
                unusable = worker.in_flight.pop(task)
                self._attempts.pop(task, None)
                for each in (unusable, *self._queue.drop(unusable.problem.name)):
                    self._futures.pop(each.id).set_exception(ProblemError(reason))
            case Lacking(reason):
                raise EnvironmentLacking(reason)

    def _settle(self, verdict: Verdict) -> None:
        self._attempts.pop(verdict.task, None)
        self._futures.pop(verdict.task).set_result(verdict)

    def _replace(self, dead: Worker, how: str) -> None:
        """Has another worker started in place of `dead`, which has ended as `how` says. Its tasks wait again.

        They become the first of their problems. But if the checks of a candidate had begun, this candidate may be the
        cause: it becomes the last of its problem, and the second time (_MOST_ATTEMPTS) it is CRASHED.
        Raises EnvironmentLacking if, since the last verdict of any worker, _MOST_FAILED_STARTS workers have ended while
        they checked no candidate.
        """
        _LOG.warning("%s", how)
        cause = None if dead.began is None else dead.in_flight.pop(dead.began, None)
        self._missing.append(self._workers.pop(dead))
        for task in reversed(dead.in_flight.values()):
            self._queue.add(task, first=True)
        if cause is None:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_FAILED_STARTS:
                raise EnvironmentLacking(f"{_MOST_FAILED_STARTS} workers ended without a verdict. The last one: {how}")
            return
        attempts = self._attempts[cause.id] = self._attempts.get(cause.id, 0) + 1
        if attempts < _MOST_ATTEMPTS:
            self._queue.add(cause)
        else:
            reason = f"The device worker ended {attempts} times while it judged this candidate, the last time alone."
            self._settle(Verdict(cause.id, crashed=f"{reason} {how[-200:]}"))


class LocalScheduler(Scheduler):
    """A Scheduler of device workers on this machine. No candidate may read the paths in `hidden`."""

    def __init__(self, allocation: Allocation, settings: Settings, hidden: Sequence[Path] = ()) -> None:
        self.folder = SuiteFolder()
        paths = [path.absolute() for path in hidden]
        rest = (settings, paths, self.folder, allocation.threads)
        super().__init__([partial(DeviceWorker, each, *rest) for each in allocation.devices], allocation.ahead)

    def close(self) -> None:
        """Ends all workers and removes their files. Futures without a verdict raise UserError. Safe to call twice."""
        super().close()
        self.folder.close()


def results(task: Task, verdict: Verdict) -> list[Result]:
    """Returns the result of the task's candidate, then those of the baselines that were timed beside it."""
    candidate = task.candidate
    if verdict.crashed:
        return [Result(candidate.name, Status.CRASHED, verdict.crashed, {}, candidate.sha256)]
    return [from_line(line) for line in verdict.lines]
