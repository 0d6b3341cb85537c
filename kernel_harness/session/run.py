"""The context that every step of a run (build, check, timing) gets, and the interface of objects that show progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

from kernel_harness.checking.cases import Reference
from kernel_harness.checking.plan import Case, large, plan
from kernel_harness.core.status import Status
from kernel_harness.problem import sizing
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
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


@dataclass(frozen=True, kw_only=True)
class RunContext(RunFacts):
    """What the steps of a run share: its facts, the source of right answers, the observer and the fork server.

    `place` tells which of the timed shapes the run is at, such as ", shape 2 of 3"; it is empty at the problem's own.
    """

    reference: Reference
    observer: Observer
    fork_server: ForkServer
    place: str = ""

    def tell(self, trials: Iterable[Trial], text: str) -> None:
        """Tells the observer, for each of the trials, that the step `text` has begun."""
        for trial in trials:
            self.observer.stage(trial.name, text + self.place)

    def trial(self, candidate: Candidate) -> Trial:
        """Returns a new trial of a candidate. Nothing has been started."""
        tell = partial(self.observer.stage, candidate.name)
        return Trial(
            candidate, self.new_client, self.reference, self.cases, tell,
            resized=lambda: self.resized, large=lambda: large(self.problem, self.settings.seed),
        )  # fmt: skip

    @cached_property
    def resized(self) -> tuple[Reference, Sequence[Case]] | None:
        """What a candidate is checked with that refuses the sizes that were chosen for a CPU; None if none were.

        There are no cases if no other sizes suit a CPU.
        """
        shape = sizing.aligned(self.problem) if self.settings.case is None else None
        if not shape:
            return None if shape is None else (self.reference, [])
        problem = self.problem.at(shape)
        cases = plan(problem, self.settings.seed, quick=self.settings.quick)
        return Reference(problem, self.reference.device, self.settings.precision), cases

    def new_client(self) -> WorkerClient:
        """Returns a new worker process that holds no model. Raises Fault if the process cannot open the device."""
        self.device.release_unused()  # the new process needs some of the device's memory
        try:
            return WorkerClient(self.fork_server, self.device.name, self.settings.limits)
        except CannotStart as error:  # other processes may hold the device memory that the new process needs
            raise Fault(Status.RUNTIME_ERROR, str(error), lacked_memory=True) from None
