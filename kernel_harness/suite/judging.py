"""The work of a device worker: it judges candidates of several problems on one device, and builds the next ones."""

from __future__ import annotations

import ctypes
import queue
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

from kernel_harness.core import phases
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.phases import phase
from kernel_harness.device import selection
from kernel_harness.problem import problem as problems
from kernel_harness.results.record import Result, to_line
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.suite.device_worker import Began, Lacking, Ready, Task, Unusable, Verdict, leave, send
from kernel_harness.workers.fork_server import ForkServer, ForkServerGone
from kernel_harness.workers.fork_server_process import ForkServerProcess

_PATIENCE_S = 0.2
_TICK_S = 0.02


def main(descriptor: int, device: str, folder: Path, process: ForkServerProcess) -> int:
    """Judges the tasks that arrive at the connection `descriptor`, until the driver closes it or is killed.

    `process` is the fork server, and `folder` is for temporary files. Returns the exit code: 1, or that of
    EnvironmentLacking if this machine cannot judge candidates.
    """
    phases.record("start", phases.process_began_s())
    driver, tasks = Connection(descriptor), queue.SimpleQueue[Task]()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        settings, hidden = driver.recv()
        threading.Thread(target=_receive, args=(driver, tasks), daemon=True).start()
        with DeviceJudge(device, settings, hidden, folder, process) as judge:
            send(driver, Ready(judge.device.label, str(judge.device.environment().get("device", "unknown"))))
            while True:
                _step(judge, tasks, driver)
    except EnvironmentLacking as error:
        send(driver, Lacking(str(error)))
        return error.exit_code
    except (KeyboardInterrupt, EOFError, ConnectionError):
        leave(folder)
        return 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the cleanup is not interrupted
    raise KeyboardInterrupt


def _receive(driver: Connection, tasks: queue.SimpleQueue[Task]) -> None:
    """Puts the driver's tasks into `tasks`. Interrupts the main thread when the driver has ended.

    Runs in a thread that does nothing else, so the driver never waits for this process when it sends.
    """
    with suppress(EOFError, OSError):
        while True:
            tasks.put(driver.recv())
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGTERM)


def _step(judge: DeviceJudge, tasks: queue.SimpleQueue[Task], driver: Connection) -> None:
    """Begins to build a task that has arrived; if none has, judges one that is built, and sends the verdict."""
    new = None
    with suppress(queue.Empty):
        new = tasks.get(block=not judge.waiting)
    task = new or judge.next(_PATIENCE_S)
    if task is None:
        return
    try:
        if new:
            judge.add(task)
            return
        send(driver, Began(task.id))
        start = time.monotonic()
        lines = tuple(map(to_line, judge.judge(task)))
        send(driver, Verdict(task.id, lines, time.monotonic() - start, phases.taken()))
    except ForkServerGone:
        raise
    except UserError as error:
        for each in (task, *judge.drop(task.problem.name)):
            send(driver, Unusable(each.id, str(error)))


class DeviceJudge(Closing):
    """Judges tasks on one device, and builds the next ones meanwhile: one fork server, one session for each problem.

    The baselines of a problem are kept between its candidates. A DeviceJudge is a context manager; at its end, every
    process that it started has ended. `hidden` are paths that no candidate may read, and `folder` is for the files of
    workers. `process` is a fork server that the DeviceJudge then owns.
    Entering the context raises EnvironmentLacking if this machine cannot judge candidates on the device. `add` and
    `judge` raise ForkServerGone if the fork server has ended, and another UserError if the task's problem cannot be
    used.
    """

    def __init__(
        self, device: str, settings: Settings, hidden: Sequence[Path], folder: Path, process: ForkServerProcess
    ) -> None:
        self.device = selection.selected(device)
        self.waiting: list[Task] = []
        """The tasks that `add` has added, and that neither `next` nor `drop` has removed."""
        self._settings, self._hidden, self._folder = settings, list(hidden), folder
        self._fork_server: ForkServer | None = ForkServer(process=process)
        self._sessions: dict[str, Session] = {}
        self._current: str | None = None

    @phase("start")
    def __enter__(self) -> DeviceJudge:
        self.device.prepare()
        return self

    def close(self) -> None:
        """Ends all processes, also those of builds. A later `add` or `judge` starts new ones."""
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None
        while self._sessions:
            self._sessions.popitem()[1].close()

    @phase("planning")
    def add(self, task: Task) -> None:
        """Adds a task to those that wait, and begins its build."""
        self._build(task)
        self.waiting.append(task)

    @phase("waiting for builds")
    def next(self, patience_s: float) -> Task | None:
        """Removes a task whose build has ended from those that wait, and returns it.

        Tasks of the problem that was judged last come first. Waits for at most `patience_s` seconds until a build has
        ended; returns None if none has.
        """
        end = time.monotonic() + patience_s
        while True:
            built = [each for each in self.waiting if self._is_built(each)]
            if built:
                chosen = next((each for each in built if each.problem.name == self._current), built[0])
                self.waiting.remove(chosen)
                return chosen
            if time.monotonic() >= end:
                return None
            time.sleep(_TICK_S)

    def judge(self, task: Task) -> list[Result]:
        """Judges a task that `next` returned.

        Returns the candidate's result first, then the results of the baselines that were timed beside it. If the
        problem cannot be used, all processes are ended, and the tasks that wait are built again.
        """
        name = task.problem.name
        if name not in self._sessions:
            for each in (task, *(each for each in self.waiting if each.problem.name == name)):
                self._build(each)
        self._leave_other_problems(name)
        try:
            return self._sessions[name].judge_one(task.candidate)
        except ForkServerGone:
            raise
        except UserError:
            self.close()
            for each in self.waiting:
                with suppress(UserError):  # `judge` raises it again
                    self._build(each)
            raise

    def drop(self, problem: str) -> list[Task]:
        """Removes all tasks of the problem of this name from those that wait, and returns them."""
        dropped = [each for each in self.waiting if each.problem.name == problem]
        self.waiting = [each for each in self.waiting if each.problem.name != problem]
        return dropped

    def _is_built(self, task: Task) -> bool:
        """Returns whether the build of a task has ended, or its problem has no session that could build it."""
        session = self._sessions.get(task.problem.name)
        return session is None or session.is_built(task.candidate)

    def _build(self, task: Task) -> None:
        """Begins to build a task, in the session of its problem, which is started if there is none."""
        name, path = task.problem.name, task.problem.path
        if name not in self._sessions:
            if self._fork_server is None:
                self._fork_server = ForkServer(process=ForkServerProcess(parent=self._folder))
            problem = problems.load(name, path).sized({}, emulated=self.device.emulated)
            if path not in self._hidden:  # also from the candidates of other problems
                self._hidden.append(path)
            settings = task.problem.settings or self._settings
            session = Session(problem, self.device, settings, SilentObserver(), self._fork_server, self._hidden)
            session.others = self._sessions.values
            self._sessions[name] = session.__enter__()
        self._sessions[name].build_ahead(task.candidate)

    @phase("ending processes")
    def _leave_other_problems(self, name: str) -> None:
        """Ends the baselines of all problems but `name`, and the sessions of those without waiting tasks."""
        self._current = name
        wanted = {name, *(each.problem.name for each in self.waiting)}
        for other in self._sessions.keys() - wanted:
            self._sessions.pop(other).close()
            with suppress(OSError, AttributeError):  # another C library
                # glibc keeps freed memory otherwise: 1.9 GB after a hundred problems.
                ctypes.CDLL(None).malloc_trim(0)
        for other, session in self._sessions.items():
            if other != name:
                session.free_memory()
