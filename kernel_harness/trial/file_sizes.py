"""Finds out what a candidate does at the sizes in its problem's file, where a CPU is too slow for its kernels.

Its host code runs there, in a dry run (`WorkerClient.dry_run`): torch's operators compute shapes, and launches are
checked and run nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kernel_harness.checking.answers import compare
from kernel_harness.core.status import Status
from kernel_harness.ipc.messages import DryRunEnded
from kernel_harness.ipc.packed import pack
from kernel_harness.problem import meta
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.known import known
from kernel_harness.problem.problem import Problem
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.worker_client import WorkerClient

if TYPE_CHECKING:
    from kernel_harness.checking.cases import Case
    from kernel_harness.trial.trial import Trial


_MOST_DRY_S = 10.0
# A grid seems to be too small if each thread has so many times as many bytes as in all cases.
_CAPPED = 1.5

_LOG = logging.getLogger(__name__)


def check(trial: Trial, problem: Problem, large: Problem | None) -> tuple[str, bool]:
    """Runs the host code of a call dry at the sizes of `problem`.

    Returns why the kernel fails there: a launch that exceeds a limit of the device, or a statement of the candidate's
    file that refuses these sizes. The text is empty for anything else that happens: it says nothing about a GPU,
    because device memory has no values in a dry run.
    Also returns whether the grid seems to be too small for the sizes of `large`, which are larger than those of all
    cases: each thread has more work there, and at the sizes of `problem`, than in any case, and the kernel is wrong if
    a 64th of its blocks run. Such a kernel may be right nevertheless, if its host code gives each block its share.
    Raises Fault if a kernel does not compile.
    """
    try:
        with _further(trial) as client:
            try:
                ended = _dry_run(client, problem)
            except Refused as refused:
                return (str(refused) if trial.refuses_by_a_statement(str(refused)) else ""), False
            if ended.refused or large is None:
                return ended.refused, False
            seen = {case.shape: trial.reference.at(case) for case in trial.cases if not case.random_parameters}
            work = (_work_of_a_thread(at, _dry_run(client, at)) for at in (large, *seen.values()))
            least = min(_work_of_a_thread(problem, ended), next(work))
            if any(_CAPPED * usual >= least for usual in work):
                return "", False
        own = next(case for case in trial.cases if case.timed_shape and case.distribution == OWN)
        return "", not _is_right_with_few(trial, own)
    except (Fault, Refused) as error:
        if isinstance(error, Fault) and error.status is Status.BUILD_ERROR:
            raise
        _LOG.info("%s: the dry run ended: %s", trial.name, error)
        return "", False


def _is_right_with_few(trial: Trial, case: Case) -> bool:
    try:
        with _further(trial) as client:
            client.make(trial.reference.at(case))
            client.thin_grids()
            answer = client.call(trial.reference.inputs(case))
    except (Fault, Refused):
        return False
    return compare(answer, *trial.reference.expectation(case)).passed


@contextmanager
def _further(trial: Trial) -> Iterator[WorkerClient]:
    """Returns a context with a further worker process of the candidate, which it may leave in any state."""
    with closing(trial.further()) as client:
        client.end_within(_MOST_DRY_S)
        yield client


def _dry_run(client: WorkerClient, problem: Problem) -> DryRunEnded:
    client.make(problem)
    return client.dry_run(pack(meta.inputs(problem)))


def _work_of_a_thread(problem: Problem, ended: DryRunEnded) -> float:
    """Returns the bytes of a call's tensors at the sizes of `problem`, for each thread that a dry run has launched."""

    def moved() -> int:
        cost = meta.cost(problem)
        return cost.bytes if cost else 0

    return known(problem, "bytes", moved) / max(1, ended.threads or 0)
