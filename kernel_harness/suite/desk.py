"""A dispatcher in a thread of its own: any thread can submit a task, and gets the task's outcome as a future."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from kernel_harness.core.errors import UserError
from kernel_harness.session.settings import Settings
from kernel_harness.suite.backlog import Backlog
from kernel_harness.suite.collection import Task
from kernel_harness.suite.dispatcher import Broken, DeviceKnown, Dispatcher, NoVerdict, Staff, Verdict
from kernel_harness.suite.workplace import Workplace

Outcome = Verdict | NoVerdict | Broken


class Desk:
    """Evaluator processes, and a thread that gives them tasks. All methods are safe to call from several threads.

    The constructor starts the thread, which starts the evaluators. `device` is the future of the names of the device,
    which the first evaluator tells. `folder` is a temporary folder that exists until `close`, or until an error ends
    the dispatcher. If this process is killed, the evaluators remove the folder.
    """

    def __init__(self, staff: Staff, settings: Settings, hidden: Sequence[Path] = ()) -> None:
        self.device: Future[DeviceKnown] = Future()
        self._lock = threading.Lock()
        self._new: list[Task] = []
        self._futures: dict[tuple[str, str], Future[Outcome]] = {}
        self._end: BaseException | None = None
        self._workplace = Workplace()
        self.folder = self._workplace.folder
        self._dispatcher = Dispatcher(staff, settings, hidden, self._workplace)
        self._thread = threading.Thread(target=self._work, name="evaluators", daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> Future[Outcome]:
        """Adds a task, whose id must differ from that of every unfinished task. Returns the future of its outcome.

        Raises UserError if the desk was closed, and EnvironmentLacking if it is known that this machine cannot judge
        candidates. If that becomes known later, the future raises the error.
        """
        future: Future[Outcome] = Future()
        with self._lock:
            if self._end is not None:
                raise self._end
            self._futures[task.id] = future
            self._new.append(task)
        self._dispatcher.wake()
        return future

    def close(self) -> None:
        """Ends all processes. Futures without an outcome raise UserError. Safe to call twice."""
        with self._lock:
            self._end = self._end or UserError("the pool of evaluators was closed")
        self._dispatcher.wake()
        self._thread.join()

    def _work(self) -> None:
        """Passes submitted tasks to the dispatcher until the desk is closed or the dispatcher raises an error."""
        backlog = Backlog((), {})
        try:
            with self._workplace, self._dispatcher:
                while self._end is None:
                    with self._lock:
                        new, self._new = self._new, []
                    for task in new:
                        backlog.add(task)
                    for event in self._dispatcher.step(backlog):
                        if not isinstance(event, DeviceKnown):
                            self._taken(event.task).set_result(event)
                        elif not self.device.done():
                            self.device.set_result(event)
        except BaseException as error:
            with self._lock:
                self._end = self._end or error
        with self._lock:
            left, self._futures = self._futures, {}
        assert self._end is not None
        for future in left.values():
            future.set_exception(self._end)
        if not self.device.done():
            self.device.set_exception(self._end)

    def _taken(self, task: Task) -> Future[Outcome]:
        with self._lock:
            return self._futures.pop(task.id)
