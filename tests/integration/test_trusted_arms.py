"""What a session keeps between candidates: worker processes of the baselines and the control, and answers."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import until
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.model_process import ModelProcess

RIGHT = Candidate("c", Path("c.py"), CANDIDATE.format(number=0, factor=2))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session that keeps the processes of the baselines, as those of a suite do."""
    write(tmp_path, {"p.py": PROBLEM.format(factor=2)})
    problem = problems.load("p", tmp_path / "p.py").on(emulated=True)
    with Session(problem, Emulated(), Settings(rounds=1, jobs=1), SilentObserver()) as made:
        yield made


def test_the_baselines_start_while_the_first_candidate_is_checked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart, check = ModelProcess.restart, Trial.check
    started: list[str] = []

    def noted(model: ModelProcess, *first: Any) -> None:
        restart(model, *first)
        started.append(model.source.class_name)

    def waiting(trial: Trial, **more: bool) -> None:
        until(lambda: len(started) == 2, "the processes have started")
        check(trial, **more)

    monkeypatch.setattr(ModelProcess, "restart", noted)
    monkeypatch.setattr(Trial, "check", waiting)
    results = [session.judge_one(RIGHT)[0] for _ in range(2)]

    assert all(result.status is Status.PASSED and result.timing for result in results)
    assert sorted(started) == ["Control", "Model"]


def test_a_baseline_that_cannot_start_beside_the_checks_is_started_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart, count = ModelProcess.restart, itertools.count()

    def failing(model: ModelProcess, *first: Any) -> None:
        if model.source.class_name == "Model" and not next(count):
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        restart(model, *first)

    monkeypatch.setattr(ModelProcess, "restart", failing)
    result = session.judge_one(RIGHT)[0]

    assert result.status is Status.PASSED and result.timing and next(count) == 2


def test_the_end_of_a_session_frees_inputs_and_answers_at_once(session: Session) -> None:
    """A suite judges many problems in one process, and Python rarely looks for cycles: GPUs would fill up."""
    case = next(case for case in session.cases if case.timed_shape)
    fails = Candidate("fails", Path("fails.py"), RIGHT.source.replace("return", "raise ValueError #"))
    gc.collect()
    gc.disable()
    try:
        outcome = session.judge_one(fails)[0]
        inputs = [weakref.ref(tensor) for tensor in session.reference.inputs(case).tensors]
        answers = [weakref.ref(tensor) for tensor in session.reference.expectation(case)[1].expected]
        assert all(each() is not None for each in (*inputs, *answers))

        session.close()

        assert outcome.status is Status.RUNTIME_ERROR
        assert not any(each() is not None for each in (*inputs, *answers))
    finally:
        gc.enable()
