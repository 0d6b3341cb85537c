"""Starts, keeps and replaces the worker processes of the trusted arms: the baselines and the control.

Trusted arms are called in the same rounds as the candidates, but not judged. The control is a fixed piece of work. A
process is replaced if it no longer answers, or after COHORTS_OF_A_PROCESS cohorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import torch

from cuda_on_cpu.core.waiting import until_done
from kernel_harness.core.phases import phase
from kernel_harness.session.run import RunContext
from kernel_harness.timing import baselines
from kernel_harness.timing.cohort import Arm
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.model_process import ModelProcess, ModelSource

COHORTS_OF_A_PROCESS = 64
"""The number of cohorts after which the worker process of a baseline or of the control is replaced.

The times of two processes with the same kernel differ a little for as long as the processes live. One process of the
baseline must therefore not serve an unlimited number of cohorts.
"""


class TrustedArmMissing(Exception):
    """The error raised if the worker process of a baseline or of the control cannot be started.

    An example of a cause is a lack of device memory. `name` is the name of the arm. `fault` is a Fault, which has the
    status, the reason and the log.
    """

    def __init__(self, name: str, fault: Fault) -> None:
        super().__init__(f"{name} cannot be started: {fault}")
        self.name, self.fault = name, fault


class _TrustedArm(ModelProcess):
    """A trusted arm's worker process, and the number of `cohorts` that it has been timed in."""

    cohorts = 0


class TrustedArms:
    """The worker processes of the baselines and the control, which are kept between cohorts and runs."""

    def __init__(self) -> None:
        self._idle: dict[str, _TrustedArm] = {}
        self._starting: dict[str, Future[_TrustedArm]] = {}  # ahead of their first cohort

    def start_ahead(self, run: RunContext) -> None:
        """Begins to start the missing processes of the next cohort in other threads. Does not wait for them.

        `running` tries again to start a process that cannot be started ahead, for example for lack of memory beside a
        candidate that is checked.
        """
        have = self._idle.keys() | self._starting.keys()
        self._starting |= _begun(run, {name: model for name, model in _models(run).items() if name not in have})

    @contextmanager
    def running(self, run: RunContext) -> Iterator[list[Arm]]:
        """Returns a context whose value is the list of the arms of the baselines and of the control, for one cohort.

        At the beginning of the context, kept worker processes are woken up, and missing ones are started. At its end, a
        process is kept if its arm has no fault and it has served fewer than COHORTS_OF_A_PROCESS cohorts. Otherwise,
        and after an exception in the context, the process is ended. Raises TrustedArmMissing if a process cannot be
        started.
        """
        found: dict[str, _TrustedArm] = {}
        models = _models(run)
        try:
            for name in models:
                if process := self._awake(name):
                    found[name] = process
            found |= _waited_for(_begun(run, {n: m for n, m in models.items() if n not in found}))
            arms = [Arm(name, process, trusted=True) for name, process in found.items()]
            yield arms
            for arm, process in zip(arms, found.values(), strict=True):
                process.cohorts += 1
                if arm.fault is None and process.cohorts < COHORTS_OF_A_PROCESS:
                    self._idle[arm.name] = process
        finally:
            for process in found.values():
                if process not in self._idle.values():
                    process.close()

    def close(self) -> None:
        """Ends the kept worker processes, and those that `start_ahead` starts. The next cohort starts new ones."""
        while self._idle:
            self._idle.popitem()[1].close()
        while self._starting:
            self._starting.popitem()[1].add_done_callback(_end)

    def _awake(self, name: str) -> _TrustedArm | None:
        """Removes the kept process of the arm `name`, wakes it up and returns it. Returns None if it does not answer.

        Also returns None if no process is kept. A process that `start_ahead` has begun to start counts as kept: this
        method waits until it has started, and returns None if it cannot be started.
        """
        process = self._idle.pop(name, None)
        if name in self._starting:
            with suppress(TrustedArmMissing, torch.OutOfMemoryError):
                process = _waited_for({name: self._starting.pop(name)})[name]
        if process is not None:
            try:
                process.running.ping()
            except Fault:
                process.close()
                return None
        return process


def _models(run: RunContext) -> Mapping[str, ModelSource]:
    compiled = run.settings.compiled and run.device.policy.compiles_baseline
    return baselines.trusted_arms(run.problem, run.settings.baseline, compiled=compiled)


def _begun(run: RunContext, models: Mapping[str, ModelSource]) -> dict[str, Future[_TrustedArm]]:
    """Begins to start a worker process for each model, in a thread each. Returns the futures by the name of the arm.

    A future raises TrustedArmMissing if its process cannot be started.
    """
    if not models:
        return {}
    pool = ThreadPoolExecutor(len(models))
    try:
        return {name: pool.submit(_started, run, name, model) for name, model in models.items()}
    finally:
        pool.shutdown(wait=False)


@phase("new baselines")
def _waited_for(starting: Mapping[str, Future[_TrustedArm]]) -> dict[str, _TrustedArm]:
    """Returns the processes when all have started. If one cannot be started, ends the others and raises its error."""
    try:
        until_done(starting.values())
        return {name: each.result() for name, each in starting.items()}
    except BaseException:
        for each in starting.values():
            each.add_done_callback(_end)
        raise


def _end(starting: Future[_TrustedArm]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()


def _started(run: RunContext, name: str, model: ModelSource) -> _TrustedArm:
    run.observer.stage("", f"starting {name}")
    process = _TrustedArm(model, run.new_client, run.reference)
    try:
        process.restart()
    except Refused as refusal:
        raise TrustedArmMissing(name, refusal.as_fault()) from None
    except Fault as fault:
        raise TrustedArmMissing(name, fault) from None
    return process
