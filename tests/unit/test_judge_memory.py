"""The judge holds few tensors of the size of the inputs at the same time, so large problems fit into a GPU's memory."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch
from support.live_tensors import LiveTensors

from kernel_harness.checking import elementwise, oracle, verify
from kernel_harness.checking.cases import Case, Reference, plan
from kernel_harness.explain import sensitivity
from kernel_harness.ipc import input_memory
from kernel_harness.problem import distributions
from kernel_harness.problem.problem import load

N = 1 << 20
SOFTMAX = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.rand(16, ROWS)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    """The reference of a problem of whose large tensors nothing is kept, and that is compared in small pieces."""

    def forget(reference: Reference) -> None:
        reference._inputs.clear()
        reference._expectations.clear()

    monkeypatch.setattr(Reference, "make_room", forget)
    for module, name in ((elementwise, "CHUNK"), (distributions, "_PART"), (sensitivity, "_PIECE")):
        monkeypatch.setattr(module, name, N // 64)
    monkeypatch.setattr(input_memory, "_COMPARED", N // 64)
    path = tmp_path / "softmax.py"
    path.write_text(SOFTMAX.replace("ROWS", str(N // 16)))
    return Reference(load("softmax", path), "cpu", None)


def peak(step) -> float:
    """Returns the most bytes alive during `step`, in sizes of the input, and discards the result."""
    with LiveTensors() as live:
        step()
    return live.peak / (4 * N)


def case_of(reference: Reference, distribution: str) -> Case:
    return next(case for case in plan(reference.problem, 1) if case.distribution == distribution)


def test_tensors_that_are_alive_at_the_same_time_are_counted() -> None:
    def step() -> None:
        for _ in range(3):
            a = torch.zeros(N)
            b = a + 1
            del a, b

    assert peak(step) == 2


def test_a_trial_holds_inputs_and_outputs_once(reference: Reference) -> None:
    case = case_of(reference, "own")

    assert peak(lambda: reference.require(case)) < 2.2
    assert peak(lambda: reference.works(case)) < 2.2


def test_whether_a_variation_works_is_found_with_three_copies_of_the_inputs(reference: Reference) -> None:
    assert peak(lambda: reference.works(case_of(reference, "normal"))) < 3.6


def test_the_right_answer_takes_little_besides_its_float64_oracle(reference: Reference) -> None:
    case = case_of(reference, "own")
    reference.inputs(case)

    # The input, which is counted because it is compared with what the reference left of its copy, the float32 answer,
    # float64 inputs and float64 outputs.
    assert peak(lambda: reference.expectation(case)) < 6.2


def test_the_float64_oracle_of_a_large_batch_takes_little_besides_itself(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(reference, "own")
    reference.inputs(case)
    monkeypatch.setattr(oracle, "_SLICED_BYTES", N // 2)

    # The input, which is counted because slices are views of it, the float32 answer and the float64 outputs.
    assert peak(lambda: reference.expectation(case)) < 4.6


def test_a_cached_answer_does_not_hold_the_inputs(reference: Reference) -> None:
    case = case_of(reference, "own")
    inputs = [weakref.ref(tensor) for tensor in reference.inputs(case).tensors]
    reference.expectation(case)

    assert case in reference._expectations
    assert [each() for each in inputs] == [None]

    _, expectation = reference.expectation(case)
    assert [each.shape for each in expectation.inputs] == [(16, N // 16)]
    assert expectation.rounded is not None and expectation.rounded(lambda tensor: tensor)


@pytest.mark.parametrize(
    "output", ["torch.softmax(x, dim=1)[0, :7]", "torch.nn.functional.smooth_l1_loss(x, x + 1)"], ids=["slice", "loss"]
)
def test_a_cached_answer_holds_only_the_memory_of_its_elements(output: str, tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text(SOFTMAX.replace("torch.softmax(x, dim=1)", output).replace("ROWS", str(N // 16)))
    reference = Reference(load("small", path), "cpu", None)
    _, expectation = reference.expectation(case_of(reference, "own"))

    assert expectation.oracle is not None
    for tensor in (*expectation.expected, *expectation.oracle):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_a_right_answer_is_compared_in_pieces(reference: Reference) -> None:
    _, expectation = reference.expectation(case_of(reference, "own"))
    outputs = [torch.clone(each) for each in expectation.expected]

    assert peak(lambda: verify.verify(outputs, expectation)) < 4.7  # 4 of it are the two answers and the oracle


def test_wrong_answers_are_tried_one_at_a_time(reference: Reference) -> None:
    timed = [case for case in plan(reference.problem, 1) if case.timed_shape]

    assert peak(lambda: sensitivity.remarks(reference, timed)) < 7.2
