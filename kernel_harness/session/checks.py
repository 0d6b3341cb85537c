"""Builds the candidates of a batch in parallel and checks them one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import psutil

from kernel_harness.checking.cases import plan
from kernel_harness.core.phases import phase
from kernel_harness.explain.failed import on_trial as explained
from kernel_harness.explain.passed import on_memory
from kernel_harness.problem.candidate import Candidate
from kernel_harness.session.reproduce import sanitize_command
from kernel_harness.session.run import RunContext
from kernel_harness.trial.trial import Trial

_TICK_S = 0.05
# A candidate that failed beside other processes may have lacked the device's memory because of them if they hold more
# than this share of it. What it held itself does not count.
_MUCH_HELD = 1 / 16


class BuildsAhead:
    """Builds that begin before the run that checks their candidates.

    A built candidate's worker process is paused until the candidate is checked. The constructor starts nothing.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._started: dict[Candidate, Trial] = {}

    def start(self, run: RunContext, candidate: Candidate) -> None:
        """Queues the candidate's build, which begins as soon as a thread is free, and returns at once.

        Does nothing if the build was queued before and `take` has not removed it since.
        """
        if candidate not in self._started:
            self._pool = self._pool or ThreadPoolExecutor(_jobs(run))
            self._started[candidate] = run.trial(candidate)
            self._started[candidate].begin_build(self._pool, with_constructor=True)

    def is_done(self, candidate: Candidate) -> bool:
        """Returns whether the candidate's build has ended, successfully or not.

        Returns False if `start` was not called for the candidate, or `take` has removed the build.
        """
        return candidate in self._started and self._started[candidate].building.done()

    def take(self, candidate: Candidate) -> Trial | None:
        """Removes the candidate's trial from this object and returns it.

        Returns None if `start` was not called for the candidate, or if `end_processes` ends the process.
        """
        trial = self._started.pop(candidate, None)
        return None if trial is None or trial.is_discarded else trial

    def end_processes(self) -> None:
        """Ends the worker process of each build that was queued, as soon as the build has ended. Returns at once."""
        for trial in self._started.values():
            trial.discard()

    def close(self) -> None:
        """Cancels the builds that wait, and ends the worker process of each other build as soon as the build has ended.

        Returns at once. A build that still runs ends when the caller closes the fork server.
        """
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self.end_processes()
        self._started.clear()


def check_all(
    run: RunContext, candidates: Sequence[Candidate], take_device: Callable[[], None], ahead: BuildsAhead,
    entered: Callable[[Trial], None],
) -> Iterator[Trial]:  # fmt: skip
    """Builds the candidates in parallel. Checks each candidate as soon as it is built, and then yields its trial.

    A build that `ahead` has is not begun again. `take_device` is called before each check; it returns once no other run
    uses the device. `entered` gets each trial when it enters a state. An exception closes the fork server, so that the
    running builds end.
    Raises torch.OutOfMemoryError if the device has too little memory for the right answer.
    """
    with ThreadPoolExecutor(_jobs(run)) as pool:
        building: dict[Future[None], Trial] = {}
        waiting: list[Trial] = []
        for candidate in candidates:
            trial = _begun(run, candidate, pool, ahead, alone=len(candidates) == 1)
            trial.entered = entered
            building[trial.building] = trial
        try:
            while building:
                # The wait has a timeout: an interruption that arrives just before a wait takes effect only after the
                # wait.
                with phase("waiting for builds"):
                    ended = wait(building, _TICK_S, FIRST_COMPLETED).done
                for built in ended:
                    built.result()
                    take_device()
                    for trial in waiting:  # until it is timed, a worker may escape from its pause
                        trial.pause()
                    trial = building.pop(built)
                    trial.check(ready_for_timing=run.settings.case is None)
                    if trial.fault is None:
                        trial.pause()
                        waiting.append(trial)
                    yield trial
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            run.fork_server.close()  # ends the running builds, otherwise the pool would wait for them
            raise


def _begun(
    run: RunContext, candidate: Candidate, pool: ThreadPoolExecutor, ahead: BuildsAhead, *, alone: bool
) -> Trial:
    """Returns the candidate's trial, whose build has been queued now or ahead."""
    trial = ahead.take(candidate)
    if trial is None:
        trial = run.trial(candidate)
        trial.begin_build(pool, with_constructor=not alone)
    return trial


def explain(run: RunContext, trial: Trial) -> None:
    """Gives a trial that failed its checks its remarks, and ends its worker process."""
    assert trial.fault is not None
    trial.remarks = explained(trial, run.fork_server, run.settings.seed, emulated=run.device.emulated)
    trial.wrong = None  # it may take much of the device's memory
    trial.close()
    trial.fault.lacked_memory = trial.fault.lacked_memory and run.device.used_share() > _MUCH_HELD


@phase("sanitizer")
def sanitize(run: RunContext, trials: Sequence[Trial]) -> None:
    """Gives trials that passed their checks what the sanitizer finds in them, on a GPU only if the settings say so.

    Their verdicts stand, and their interim results are stored. Under emulation, several are sanitized at a time. The
    cases are those of a run that is not quick, of which a call or two are sanitized: the few shapes of a quick run may
    all fit a kernel's tiles. Raises EnvironmentLacking if a GPU's sanitizer is not installed.
    """
    if not run.device.emulated and not run.settings.sanitize:
        return
    device = run.device.name.partition("-")[0]
    quick = run.settings.quick and run.settings.case is None
    cases = plan(run.problem, run.settings.seed) if quick else run.cases

    def one(trial: Trial) -> None:
        again = sanitize_command(trial.reference.problem, run.device, trial.candidate)
        own = trial.cases if trial.untimed else cases  # at the sizes that the candidate does not refuse
        trial.remarks += on_memory(trial, own, run.fork_server, run.settings.seed, device, again)

    with ThreadPoolExecutor(_jobs(run) if run.device.policy.checked_side_by_side else 1) as pool:
        try:
            list(pool.map(one, trials))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _jobs(run: RunContext) -> int:
    if run.settings.jobs:
        return run.settings.jobs
    by_memory = int(psutil.virtual_memory().available // run.device.policy.build_bytes)
    return max(1, min(len(os.sched_getaffinity(0)), by_memory))
