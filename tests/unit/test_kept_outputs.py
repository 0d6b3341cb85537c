"""Which outputs a candidate may keep from call to call: the judge overwrites the others after each call."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.problem.problem import load

SOURCE = """
import torch

N = 8


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1 << 20, 4))

    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("x * 2", ()),
        ("torch.arange(N), x * 2", (0,)),
        ("x > 2, x", (0,)),
        ("self.table[int(x[0] * 1000)], x + 1", (0,)),  # a row of the model's own memory, another one in each call
        ("self.table", (0,)),
        ("x.sum(), self.table[:2] + x[0]", ()),
    ],
)
def test_outputs_that_are_constant_or_part_of_the_model_may_be_kept(
    answer: str, kept: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE.format(answer=answer))
    problem = load("p", path)
    reference = Reference(problem, "cpu", None)
    case = next(case for case in plan(problem, 1) if case.distribution == "own")

    reference.require(case)
    before = reference.kept_outputs(problem)
    reference.expectation(case)

    assert before is None
    assert reference.kept_outputs(problem) == kept
