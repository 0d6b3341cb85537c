"""Judges candidates of several problems on one device: one fork server for all, one session for each problem."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.core.errors import UserError
from kernel_harness.core.phases import phase
from kernel_harness.device import selection
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.sandbox.fork_server import ForkServer, ForkServerGone
from kernel_harness.sandbox.fork_server_process import ForkServerProcess
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

_TICK_S = 0.02


@dataclass(frozen=True)
class Assignment:
    """The candidate of the driver's request `number`. `problem` is the problem's file, `name` the problem's name."""

    number: int
    problem: Path
    name: str
    candidate: Candidate


class ProblemUnusable(Exception):
    """The error raised if candidates of a problem cannot be judged, because of the problem and not of a candidate."""


class Station:
    """Judges candidates on one device, and builds the next candidates meanwhile.

    The baselines of a problem are kept between its candidates. A Station is a context manager; at its end, every
    process that it started has ended. `hidden` are paths that no candidate may read, and `folder` is for the files of
    workers. `process` is a fork server that the Station then owns.
    Entering the context raises EnvironmentLacking if this machine cannot judge candidates on the device.
    """

    def __init__(
        self, device: str, settings: Settings, hidden: Sequence[Path], folder: Path, process: ForkServerProcess
    ) -> None:
        self.device = selection.selected(device)
        self._settings, self._hidden, self._folder = settings, list(hidden), folder
        self._fork_server: ForkServer | None = ForkServer(process=process)
        self._sessions: dict[str, Session] = {}
        self._waiting: list[Assignment] = []
        self._current: str | None = None

    @phase("start")
    def __enter__(self) -> Station:
        self.device.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes of the station, also those of builds. A later `add` or `judge` starts new processes."""
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None
        while self._sessions:
            self._sessions.popitem()[1].__exit__(None, None, None)

    @property
    def waiting(self) -> int:
        """The number of assignments that `add` has added, and that neither `next` nor `drop` has removed."""
        return len(self._waiting)

    @phase("planning")
    def add(self, assignment: Assignment) -> None:
        """Adds an assignment, and begins its build. Raises ProblemUnusable if its problem cannot be used."""
        self._begin_build(assignment)
        self._waiting.append(assignment)

    @phase("waiting for builds")
    def next(self, patience_s: float) -> Assignment | None:
        """Removes an assignment whose build has ended from those that wait, and returns it.

        Assignments of the problem that was judged last come first. Waits for at most `patience_s` seconds until a build
        has ended; returns None if none has.
        """
        end = time.monotonic() + patience_s
        while True:
            built = [each for each in self._waiting if self._is_built(each)]
            if built:
                chosen = next((each for each in built if each.name == self._current), built[0])
                self._waiting.remove(chosen)
                return chosen
            if time.monotonic() >= end:
                return None
            time.sleep(_TICK_S)

    def judge(self, assignment: Assignment) -> list[Result]:
        """Judges the candidate of an assignment that `next` returned.

        Returns the candidate's result first, then the results of the baselines that were timed beside it.
        Raises ForkServerGone if the fork server has ended, and ProblemUnusable if the problem cannot be used. Before
        ProblemUnusable, all processes are ended, and the builds of the assignments that wait are started again.
        """
        if assignment.name not in self._sessions:
            self._begin_builds(assignment.name, assignment)
        self._leave_other_problems(assignment.name)
        try:
            return self._sessions[assignment.name].judge_one(assignment.candidate)
        except ForkServerGone:
            raise
        except UserError as error:
            self.close()
            for name in {each.name for each in self._waiting}:
                with suppress(ProblemUnusable):  # `judge` raises it again
                    self._begin_builds(name)
            raise ProblemUnusable(str(error)) from None

    def drop(self, name: str) -> list[Assignment]:
        """Removes all assignments of the problem `name` from those that wait, and returns them."""
        dropped = [each for each in self._waiting if each.name == name]
        self._waiting = [each for each in self._waiting if each.name != name]
        return dropped

    def _is_built(self, assignment: Assignment) -> bool:
        """Returns whether the build of an assignment has ended, or its problem has no session that could build it."""
        session = self._sessions.get(assignment.name)
        return session is None or session.is_built(assignment.candidate)

    def _begin_builds(self, name: str, *more: Assignment) -> None:
        """Begins the builds of `more` and of all assignments of the problem `name` that wait."""
        for each in (*more, *(each for each in self._waiting if each.name == name)):
            self._begin_build(each)

    def _begin_build(self, assignment: Assignment) -> None:
        try:
            self._session_of(assignment).build_ahead(assignment.candidate)
        except ForkServerGone:
            raise
        except UserError as error:
            raise ProblemUnusable(str(error)) from None

    def _session_of(self, assignment: Assignment) -> Session:
        """Returns the session of the assignment's problem, which is started if there is none."""
        if assignment.name not in self._sessions:
            if self._fork_server is None:
                self._fork_server = ForkServer(process=ForkServerProcess(parent=self._folder))
            problem = problems.load(assignment.name, assignment.problem).sized({}, emulated=self.device.emulated)
            if assignment.problem not in self._hidden:  # also from the candidates of other problems
                self._hidden.append(assignment.problem)
            session = Session(
                problem, self.device, self._settings, SilentObserver(), self._fork_server, self._hidden
            )  # fmt: skip
            session.companions.kept = True
            session.others = self._sessions.values
            self._sessions[assignment.name] = session.__enter__()
        return self._sessions[assignment.name]

    @phase("ending processes")
    def _leave_other_problems(self, name: str) -> None:
        """Ends the baselines of all problems but `name`, and the sessions of those without waiting assignments."""
        self._current = name
        wanted = {name, *(each.name for each in self._waiting)}
        for other in self._sessions.keys() - wanted:
            self._sessions.pop(other).__exit__(None, None, None)
            _return_free_memory()
        for other, session in self._sessions.items():
            if other != name:
                session.free_memory()


def _return_free_memory() -> None:
    """Gives freed memory back to the machine. glibc keeps it otherwise: 1.9 GB after a hundred problems."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
