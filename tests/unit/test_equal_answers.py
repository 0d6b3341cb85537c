"""Answers that are the reference's in every bit need no float64; all others get the whole comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_harness.checking.answers import compare_bits
from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.oracle import Float64
from kernel_harness.checking.reference_runs import Answered
from kernel_harness.core.precision import Precision
from kernel_harness.core.status import Status
from kernel_harness.ipc import tensors
from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.messages import Clocked
from kernel_harness.problem.problem import load
from kernel_harness.workers.gated_call import Bracket
from kernel_harness.workers.worker_client import Answer

RIGHT = torch.tensor([0.0, 1.5, -2.0]).repeat(400)
NEXT = torch.nextafter(RIGHT[1:2], torch.tensor([9.0]))
INPUTS = (torch.arange(4.0),)


def answer(*outputs: torch.Tensor, written: Written | None = None) -> Answer:
    structure, found = tensors.flatten_output(outputs[0] if len(outputs) == 1 else outputs)
    return Answer(structure, tuple(found), Clocked(None), Bracket(1.0), written=written or Written())


def answered(*outputs: torch.Tensor, changed: tuple[int, ...] = ()) -> Answered:
    return Answered(answer(*outputs).structure, outputs, changed)


def test_an_equal_answer_passes_with_its_format() -> None:
    check = compare_bits(answer(RIGHT.clone()), answered(RIGHT), INPUTS, "a case")
    assert check is not None and check.passed and check.precision is Precision.FLOAT32 and not check.unchecked


def test_an_equal_answer_with_few_elements_shows_no_format() -> None:
    check = compare_bits(answer(RIGHT[:9].clone()), answered(RIGHT[:9]), INPUTS, "a case")
    assert check is not None and check.passed and check.precision is None and check.unchecked


@pytest.mark.parametrize(
    "other",
    [
        torch.cat([RIGHT[:1], NEXT, RIGHT[2:]]),
        torch.cat([-RIGHT[:1], RIGHT[1:]]),  # a zero with the other sign
        RIGHT.double(),
        RIGHT[:-1],
        RIGHT[None],
        torch.empty_like(RIGHT, device="meta"),
    ],
    ids=["last-bit", "sign-of-zero", "dtype", "length", "shape", "not-copied"],
)
def test_an_answer_that_differs_in_anything_is_left_to_the_comparison(other: torch.Tensor) -> None:
    assert compare_bits(answer(other), answered(RIGHT), INPUTS, "a case") is None


def test_another_structure_and_an_answer_that_is_not_finite_are_left_to_the_comparison() -> None:
    infinite = torch.cat([RIGHT, torch.tensor([torch.inf])])
    assert compare_bits(answer(RIGHT, RIGHT), answered(RIGHT), INPUTS, "a case") is None
    assert compare_bits(answer(infinite.clone()), answered(infinite), INPUTS, "a case") is None


def test_an_equal_answer_that_wrote_to_an_input_is_no_right_one() -> None:
    for written in (Written(inputs=(0,)), Written(beside=(0,))):
        check = compare_bits(answer(RIGHT, written=written), answered(RIGHT), INPUTS, "a case")
        assert check is not None and check.status is Status.MUTATED_INPUT


def test_an_input_that_the_reference_changes_must_be_changed_alike() -> None:
    right = answered(RIGHT, INPUTS[0] + 1, changed=(0,))._replace(structure=answer(RIGHT).structure)
    alike = Written(inputs=(0,), after={0: INPUTS[0] + 1})
    check = compare_bits(answer(RIGHT, written=alike), right, INPUTS, "a case")
    assert check is not None and check.passed
    assert compare_bits(answer(RIGHT), right, INPUTS, "a case") is None


def test_the_answer_of_a_case_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether only its float32 answer is wanted, or the expectation, and in which order."""
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 3\n\n\n"
        "def get_inputs():\n    return [torch.rand(2000)]\n"
    )
    reference, calls = Reference(load("p", path), "cpu", None), {"float32": 0, "float64": 0}
    run, compute = reference.run, Float64.compute

    def counted_run(*arguments: object, **more: object) -> object:
        calls["float32"] += 1
        return run(*arguments, **more)  # type: ignore[arg-type]

    def counted_compute(self: Float64, *arguments: object, **more: object) -> object:
        calls["float64"] += 1
        return compute(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(reference, "run", counted_run)
    monkeypatch.setattr(Float64, "compute", counted_compute)
    case = plan(reference.problem, 1)[0]
    first = reference.answer(case)
    assert calls == {"float32": 1, "float64": 0}
    expectation = reference.expectation(case)[1]
    again = reference.answer(case)

    assert calls == {"float32": 1, "float64": 1}
    assert torch.equal(first.tensors[0], expectation.expected[0]) and again.changed == ()
    assert torch.equal(again.tensors[0], expectation.expected[0])
