"""A trial: its states, who ends its worker process, and what explainers say of one that failed."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.product import PROBLEM

from kernel_harness.checking.cases import Case, Reference, plan
from kernel_harness.core.remark import RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.device import Clocked
from kernel_harness.explain import failed
from kernel_harness.problem.candidate import Candidate
from kernel_harness.trial.trial import State, Trial
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.gated_call import Bracket
from kernel_harness.workers.worker_client import Answer


class Multiplies:
    """Stands in for a worker process: it returns A.T @ B.T times `factor`, or raises `error`."""

    def __init__(self, factor: float = 1.0, error: Exception | None = None) -> None:
        self.factor, self.error = factor, error
        self.builds = SimpleNamespace(made=[])
        self.closed = False
        self.printed = ""
        self.worker = SimpleNamespace(pause=lambda: None)

    def load(self, *_: str) -> None:
        pass

    def make(self, problem: object, **_: object) -> bool:
        return True

    def call(self, packed: Any, **_: object) -> Answer:
        if self.error is not None:
            raise self.error
        a, b = packed.tensors
        return Answer({"tensor": 0}, (self.factor * torch.matmul(a.T, b.T),), Clocked(None), Bracket(1.0), 1)

    def lacking(self) -> tuple[str, ...]:
        return ()

    def release_large(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(PROBLEM, "cpu", None)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return plan(PROBLEM, 1, quick=True)


def trial_of(process: Multiplies, reference: Reference, cases: list[Case]) -> Trial:
    return Trial(Candidate("c", Path("c.py"), "source"), lambda: process, reference, cases)  # type: ignore[arg-type, return-value]


def test_a_trial_reports_its_states_and_ends_its_process_when_it_is_done(
    reference: Reference, cases: list[Case]
) -> None:
    process, states = Multiplies(), []
    trial = trial_of(process, reference, cases)
    trial.entered = lambda each: states.append((each.state, process.closed))
    trial.build()
    trial.check()
    trial.enter(State.WAITING)
    trial.enter(State.DONE)

    assert trial.status is Status.PASSED and trial.first_call_ms == 1.0
    assert states == [(State.BUILT, False), (State.CHECKED, False), (State.WAITING, False), (State.DONE, True)]


def test_a_process_that_is_discarded_ends_once_its_build_has_ended(reference: Reference, cases: list[Case]) -> None:
    process = Multiplies()
    trial = trial_of(process, reference, cases)
    trial.building = Future()
    trial.discard()
    trial.build()
    before = process.closed
    trial.building.set_result(None)

    assert trial.is_discarded and (before, process.closed) == (False, True)


@pytest.mark.parametrize(
    ("error", "status"),
    [(Fault(Status.CRASHED, "SIGSEGV"), Status.CRASHED), (Refused("ValueError: only M=1"), Status.RUNTIME_ERROR)],
)
def test_the_case_in_which_a_candidate_failed_is_a_part_of_the_reason(
    error: Exception, status: Status, reference: Reference, cases: list[Case]
) -> None:
    trial = trial_of(Multiplies(error=error), reference, cases)
    trial.build()
    trial.check()

    assert trial.fault is not None and trial.status is status
    assert trial.failed_case is cases[0] and f"The failure was at the case {cases[0].name}." in trial.fault.reason


def test_a_candidate_whose_build_failed_is_not_called(reference: Reference, cases: list[Case]) -> None:
    process = Multiplies(error=AssertionError("it was called"))
    process.load = lambda *_: (_ for _ in ()).throw(Fault(Status.BUILD_ERROR, "no"))  # type: ignore[method-assign]
    trial = trial_of(process, reference, cases)
    trial.build()
    trial.check()

    assert trial.status is Status.BUILD_ERROR and trial.failed_case is None and trial.state is State.CHECKED


def test_the_mistake_behind_wrong_values_is_a_remark_and_no_part_of_the_verdict(
    reference: Reference, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of(Multiplies(factor=2), reference, cases)
    trial.build()
    trial.check()
    pattern = SimpleNamespace(text="The sum is wrong.", advice="look there")
    monkeypatch.setattr(failed.hypotheses, "find", lambda *_: pattern)
    (remark,) = failed.on_trial(trial, None, 1, emulated=False)  # type: ignore[arg-type]

    assert trial.status is Status.WRONG_VALUES and trial.wrong is not None
    assert (remark.kind, remark.text, remark.advice) == (RemarkKind.MISTAKE, "The sum is wrong.", "look there")
    assert trial.fault is not None and "The sum is wrong" not in trial.fault.reason


def test_a_search_for_the_mistake_that_fails_leaves_the_verdict(
    reference: Reference, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        raise TimeoutError("the reference is too slow")

    trial = trial_of(Multiplies(factor=2), reference, cases)
    trial.build()
    trial.check()
    monkeypatch.setattr(failed.hypotheses, "find", slow)

    assert failed.on_trial(trial, None, 1, emulated=False) == []  # type: ignore[arg-type]
    assert trial.status is Status.WRONG_VALUES
