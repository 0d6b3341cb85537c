"""Faults of a problem file: the user is told, and no candidate is blamed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.errors import ProblemError
from kernel_harness.problem.problem import Problem, load
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.worker_client import WorkerClient

SOURCE = """
import torch

N = 8
CHECK_SHAPES = [dict(N=7)]

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
        return x * 2

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init_inputs}]
"""


def problem(folder: Path, **parts: str) -> Problem:
    path = folder / "p.py"
    usual = {"init": "pass", "forward": "pass", "inputs": "torch.rand(N)", "init_inputs": "N"}
    path.write_text(SOURCE.format(**{**usual, **parts}))
    return load("p", path)


class Unreached(WorkerClient):
    """A worker process that must not be asked for anything at a shape at which the reference fails."""

    def __init__(self) -> None:
        self.builds = SimpleNamespace(made=[])

    def make(self, problem: Problem, *, compiled: str | None = None) -> None:
        raise AssertionError("the candidate was asked")


def error_of(of: Problem) -> UserError:
    trial = Trial(Candidate("a", Path("a.py"), ""), Unreached, Reference(of, "cpu", None), plan(of, 1))
    trial.client = Unreached()
    with pytest.raises(UserError) as raised:
        trial.check()
    return raised.value


@pytest.mark.parametrize(("parts", "words"), [
    ({"init": "raise RuntimeError('no such layer')"}, "at N=8: the reference cannot run: RuntimeError: no such layer"),
    ({"forward": "assert x.shape[0] == 3, 'three'"}, "at N=8: the reference cannot run: AssertionError: three"),
    ({"inputs": "object()"}, "at N=8: the reference cannot run: "),
    ({"init_inputs": "object()"}, "at N=8: the reference cannot run: "),
    ({"inputs": "1 / 0"}, "get_inputs() at N=8: ZeroDivisionError"),
])  # fmt: skip
def test_a_reference_that_cannot_run_is_the_problem_s_fault(parts: dict[str, str], words: str, tmp_path: Path) -> None:
    error = error_of(problem(tmp_path, **parts))
    assert isinstance(error, ProblemError) and words in str(error) and error.exit_code == 2


@pytest.mark.parametrize(("part", "text"), [
    ("init", "raise RuntimeError('no such layer')"), ("forward", "x @ torch.rand(3)"), ("inputs", "1 / 0"),
])  # fmt: skip
def test_the_line_that_raised_an_error_is_named(part: str, text: str, tmp_path: Path) -> None:
    of = problem(tmp_path, **{part: text})
    line = next(i for i, line in enumerate(of.source.splitlines(), 1) if text in line)
    assert str(error_of(of)).startswith(f"{of.path}:{line}")


def test_a_host_without_memory_for_the_reference_is_no_candidate_s_fault(tmp_path: Path) -> None:
    of = problem(tmp_path, forward='raise RuntimeError("DefaultCPUAllocator: can\'t allocate memory")')
    error = error_of(of)
    assert isinstance(error, EnvironmentLacking) and "too little memory for the reference" in str(error)


def test_a_reference_is_tried_once_for_each_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    of = problem(tmp_path)
    of.module.Model.forward = lambda model, x: calls.append(x) or x
    reference = Reference(of, "cpu", None)
    monkeypatch.setattr(reference, "at", lambda case: of)
    cases = [case for case in plan(of, 1) if case.timed_shape]
    reference.require(cases[0])
    reference.require(cases[0])
    assert len(calls) == 1
