"""The context that every step of a run (build, check, timing) gets, and the interface of objects that show progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kernel_harness.checking.cases import Case, Reference
from kernel_harness.core.status import Status
from kernel_harness.device import Device
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Problem
from kernel_harness.results.record import Result
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import RunFacts
from kernel_harness.trial.trial import State, Trial
from kernel_harness.workers.faults import CannotStart, Fault
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.worker_client import WorkerClient

WAITING = str(State.WAITING)
"""The step of a candidate that waits for its checks or for its timing."""


class Observer(Protocol):
    """An object that is told about each step of a run, for example to show the progress."""

    def stage(self, kernel: str, text: str) -> None:
        """Receives the news that the candidate `kernel` has begun the step `text`.

        `kernel` is empty for a step of the whole run.
        """

    def settled(self, result: Result) -> None:
        """Receives the final result of a candidate or a baseline, after the result has been stored."""


class SilentObserver:
    """An Observer that shows nothing."""

    def stage(self, kernel: str, text: str) -> None:
        """Ignores the step."""

    def settled(self, result: Result) -> None:
        """Ignores the result."""


@dataclass(frozen=True)
class RunContext:
    """What the steps of a run share: facts, the source of right answers, the observer and the fork server.

    `facts` holds the facts that every result of the run contains.
    """

    facts: RunFacts
    reference: Reference
    observer: Observer
    fork_server: ForkServer

    @property
    def problem(self) -> Problem:
        """Returns the problem with the values of its size constants (`M`, `N`, ...) at which candidates are timed."""
        return self.facts.problem

    @property
    def device(self) -> Device:
        """Returns the device on which candidates are checked and timed."""
        return self.facts.device

    @property
    def settings(self) -> Settings:
        """Returns the user's choices for the run."""
        return self.facts.settings

    @property
    def cases(self) -> Sequence[Case]:
        """Returns the cases that each candidate is checked on."""
        return self.facts.cases

    def tell(self, trials: Iterable[Trial], text: str) -> None:
        """Tells the observer, for each of the trials, that the step `text` has begun."""
        for trial in trials:
            self.observer.stage(trial.name, text)

    def trial(self, candidate: Candidate) -> Trial:
        """Returns a new trial of a candidate. Nothing has been started."""
        tell = partial(self.observer.stage, candidate.name)
        return Trial(candidate, self.new_client, self.reference, self.cases, tell)

    def new_client(self) -> WorkerClient:
        """Returns a new worker process that holds no model. Raises Fault if the process cannot open the device."""
        self.device.release_unused()  # the new process needs some of the device's memory
        try:
            return WorkerClient(self.fork_server, self.device.name, self.settings.limits)
        except CannotStart as error:  # other processes may hold the device memory that the new process needs
            raise Fault(Status.RUNTIME_ERROR, str(error), lacked_memory=True) from None
