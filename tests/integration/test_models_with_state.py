"""A reference whose calls depend on earlier calls. A candidate is compared with its first call, also when timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness import Evaluator, Status
from kernel_harness.checking.cases import Reference
from kernel_harness.problem.problem import load

NETWORK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(16)
        self.step = torch.nn.Linear(16, 16)
        self.hidden = torch.zeros(64, 16)

    def forward(self, x):
        self.hidden = torch.tanh(self.step(x) + self.hidden.to(x.device))
        return self.norm(self.hidden)

def get_inputs():
    return [torch.randn(64, 16)]
"""
WITH_OBJECT = NETWORK.replace("self.norm =", "self.kept = object(); self.norm =")
WITHOUT_STATE = NETWORK.replace("self.hidden.to(x.device)", "0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "p.py"
    file.write_text(NETWORK)
    return file


@pytest.mark.parametrize("source", [NETWORK, WITHOUT_STATE], ids=["a copy", "the first call only"])
def test_a_candidate_is_built_anew_for_each_call(source: str, path: Path) -> None:
    with Evaluator(path, device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(source.replace("class Model", "class ModelNew"))
    assert result.status is Status.PASSED, result.reason
    assert result.timing is not None


def test_a_candidate_that_is_wrong_in_its_first_call_fails(path: Path) -> None:
    wrong = NETWORK.replace("torch.zeros(64, 16)", "torch.ones(64, 16)").replace("class Model", "class ModelNew")
    with Evaluator(path, device="cpu", budget_s=0.1) as evaluator:
        assert evaluator.evaluate(wrong).status is Status.WRONG_VALUES


@pytest.mark.parametrize(
    ("source", "keeps"),
    [(WITH_OBJECT, True), (WITH_OBJECT.replace("self.hidden.to(x.device)", "0"), False)],
    ids=["state", "no state"],
)
def test_two_calls_decide_if_a_model_holds_an_object_that_cannot_be_compared(
    source: str, keeps: bool, path: Path
) -> None:
    path.write_text(source)
    assert Reference(load("p", path), "cpu", None).keeps_state is keeps


def test_two_calls_decide_if_a_model_is_too_large_to_be_compared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "most_model_bytes", lambda self: 100)
    assert Reference(load("p", path), "cpu", None).keeps_state


def test_a_copy_of_a_model_with_state_and_an_object_passes(path: Path) -> None:
    path.write_text(WITH_OBJECT)
    with Evaluator(path, device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(WITH_OBJECT.replace("class Model", "class ModelNew"))
    assert result.status is Status.PASSED, result.reason


@pytest.mark.parametrize(("source", "keeps"), [(NETWORK, True), (WITHOUT_STATE, False)])
def test_statistics_that_no_call_reads_are_no_state(source: str, keeps: bool, path: Path) -> None:
    path.write_text(source)
    assert Reference(load("p", path), "cpu", None).keeps_state is keeps
