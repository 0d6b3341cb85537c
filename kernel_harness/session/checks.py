"""Builds the candidates of a batch in parallel and checks them one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

import psutil

from kernel_harness.checking.examination import CheckOutcome, Examination
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.diagnostics.sanitizer import sanitize
from kernel_harness.problem.candidate import Candidate
from kernel_harness.sandbox.subject import Subject
from kernel_harness.session.run import WAITING, RunContext

# The memory of one build, by whether the device is emulated: nvcc with torch's headers takes 3 GB, a build for the
# emulator takes less than 1 GB.
_BUILD_BYTES = {True: 1 << 30, False: 3 << 30}
_TICK_S = 0.05
# A candidate that failed beside other processes may have lacked the device's memory because of them if they hold more
# than this share of it. What it held itself does not count.
_MUCH_HELD = 1 / 16


@dataclass(frozen=True)
class Checked:
    """A candidate after its checks, with the outcome of the checks and the candidate's worker process `subject`.

    The worker process is paused if the candidate passed. It has ended if the candidate failed. `subject` is None if no
    worker process could be started.
    """

    candidate: Candidate
    outcome: CheckOutcome
    subject: Subject | None

    @property
    def to_be_timed(self) -> Subject | None:
        """The candidate's paused worker process if the candidate passed, else None."""
        return self.subject if self.outcome.passed else None

    def close(self) -> None:
        """Ends the candidate's worker process if there is one. Safe to call twice."""
        if self.subject is not None:
            self.subject.close()


@dataclass(frozen=True)
class Building:
    """A candidate's build, which `examination` does. The future `done` raises the exception of a build that failed."""

    examination: Examination
    done: Future[None]


class BuildsAhead:
    """Builds that begin before the run that checks their candidates.

    A built candidate's worker process is paused until the candidate is checked. The constructor starts nothing.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._started: dict[Candidate, Building] = {}
        self._ended: set[Candidate] = set()

    def start(self, run: RunContext, candidate: Candidate) -> None:
        """Queues the candidate's build, which begins as soon as a thread is free, and returns at once.

        Does nothing if the build was queued before and `take` has not removed it since.
        """
        if candidate not in self._started:
            self._pool = self._pool or ThreadPoolExecutor(_jobs(run))
            self._started[candidate] = _begin(run, candidate, self._pool, with_constructor=True)

    def is_done(self, candidate: Candidate) -> bool:
        """Returns whether the candidate's build has ended, successfully or not.

        Returns False if `start` was not called for the candidate, or `take` has removed the build.
        """
        return candidate in self._started and self._started[candidate].done.done()

    def take(self, candidate: Candidate) -> Building | None:
        """Removes the candidate's build from this object and returns it. The caller must close its worker process.

        Returns None if `start` was not called for the candidate, or if `end_processes` ends the process.
        """
        building = self._started.pop(candidate, None)
        if candidate in self._ended:
            self._ended.remove(candidate)
            return None
        return building

    def end_processes(self) -> None:
        """Ends the worker process of each build that was queued, as soon as the build has ended. Returns at once."""
        for candidate, building in self._started.items():
            if candidate not in self._ended:
                self._ended.add(candidate)
                building.done.add_done_callback(partial(_end, building.examination))

    def close(self) -> None:
        """Cancels the builds that wait, and ends the worker process of each other build as soon as the build has ended.

        Returns at once. A build that still runs ends when the caller closes the fork server.
        """
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self.end_processes()
        self._started.clear()
        self._ended.clear()


def _end(examination: Examination, done: Future[None]) -> None:
    if examination.subject is not None:
        examination.subject.close()


def check_all(
    run: RunContext, candidates: Sequence[Candidate], take_device: Callable[[], None], ahead: BuildsAhead
) -> Iterator[Checked]:
    """Builds the candidates in parallel. Checks each candidate as soon as it is built, and then yields it as a Checked.

    A build that `ahead` has is not begun again. `take_device` is called before each check; it returns once no other run
    uses the device. An exception closes the fork server, so that the running builds end.
    Raises torch.OutOfMemoryError if the device has too little memory for the right answer.
    """
    with ThreadPoolExecutor(_jobs(run)) as pool:
        building: dict[Future[None], Examination] = {}
        waiting: list[Subject] = []
        for candidate in candidates:
            begun = ahead.take(candidate) or _begin(run, candidate, pool, with_constructor=len(candidates) > 1)
            building[begun.done] = begun.examination
        try:
            while building:
                # The wait has a timeout: an interruption that arrives just before a wait takes effect only after the
                # wait.
                for built in wait(building, _TICK_S, FIRST_COMPLETED).done:
                    take_device()
                    for subject in waiting:  # until it is timed, a worker may escape from its pause
                        subject.worker.pause()
                    checked = _check(run, building.pop(built), built)
                    if checked.to_be_timed:
                        waiting.append(checked.to_be_timed)
                    yield checked
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            run.fork_server.close()  # ends the running builds, otherwise the pool would wait for them
            raise


def _begin(run: RunContext, candidate: Candidate, pool: ThreadPoolExecutor, *, with_constructor: bool) -> Building:
    examination = Examination(candidate, run.new_subject, run.reference, run.cases)
    return Building(examination, pool.submit(_build, run, examination, with_constructor))


def _build(run: RunContext, examination: Examination, with_constructor: bool) -> None:
    run.observer.stage(examination.candidate.name, "building")
    try:
        examination.build(with_constructor=with_constructor)
        assert examination.subject is not None
        # Until its checks begin, the judge reads no message of the worker, and checks none of its limits.
        examination.subject.worker.pause()
    finally:
        run.observer.stage(examination.candidate.name, WAITING)


def _check(run: RunContext, examination: Examination, built: Future[None]) -> Checked:
    candidate = examination.candidate

    def tell(text: str) -> None:
        run.observer.stage(candidate.name, text)

    outcome = examination.check(built.result, tell, ready_for_timing=run.settings.case is None)
    checked = Checked(candidate, _with_remark(run, candidate, outcome), examination.subject)
    if checked.to_be_timed:
        checked.to_be_timed.worker.pause()
    else:
        checked.close()
        lacked_memory = outcome.lacked_memory and run.device.used_share() > _MUCH_HELD
        checked = replace(checked, outcome=replace(checked.outcome, lacked_memory=lacked_memory))
    tell(WAITING)
    return checked


@phase("sanitizer")
def _with_remark(run: RunContext, candidate: Candidate, outcome: CheckOutcome) -> CheckOutcome:
    """Returns the outcome with the sanitizer's finding, if a compiled kernel failed a case on the emulated device.

    The sanitizer runs the failed case again and looks for memory errors, if the status is WRONG_VALUES, CRASHED or
    NONDETERMINISTIC. Its finding is appended to the reason. The status does not change. Any other outcome is returned
    unchanged.
    """
    worth = outcome.status in (Status.WRONG_VALUES, Status.CRASHED, Status.NONDETERMINISTIC)
    if not (worth and run.device.emulated and outcome.build.builds and outcome.failed_case):
        return outcome
    run.observer.stage(candidate.name, "running the sanitizer")
    remark = sanitize.remark(run.fork_server, run.problem, candidate, outcome.failed_case, run.settings.seed)
    reason = outcome.reason + (f"\nSanitizer: {remark}" if remark else "")
    return replace(outcome, remark=remark, reason=reason)


def _jobs(run: RunContext) -> int:
    if run.settings.jobs:
        return run.settings.jobs
    by_memory = int(psutil.virtual_memory().available // _BUILD_BYTES[run.device.emulated])
    return max(1, min(len(os.sched_getaffinity(0)), by_memory))
