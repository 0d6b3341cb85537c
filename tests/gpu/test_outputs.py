"""Outputs of every kind that a candidate may return on a GPU. Everything here is skipped where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support.product import PROBLEM_FILE

from kernel_harness import Evaluator
from kernel_harness.core.status import Status

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
]
DTYPES = sorted(
    name
    for name in dir(torch)
    if isinstance(dtype := getattr(torch, name), torch.dtype) and str(dtype) == f"torch.{name}"
)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(PROBLEM_FILE, device="cuda", budget_s=0.1) as made:
        yield made


def returning(output: str) -> str:
    return f"""
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        right = A.T @ B.T
        return {output}
"""


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "float32"])
def test_a_verdict_on_an_output_of_each_dtype(evaluator: Evaluator, name: str) -> None:
    result = evaluator.evaluate(returning(f"torch.zeros(right.shape, dtype=torch.{name}, device=right.device)"))

    wrong = (Status.WRONG_DTYPE, Status.WRONG_VALUES, Status.RUNTIME_ERROR, Status.UNSUPPORTED, Status.CRASHED)
    assert result.status in wrong and result.reason


@pytest.mark.parametrize(
    "output",
    ["right[(None,) * 24]", "right[(None,) * 62]", "right.reshape(32, *[2] * 4, 3).expand(*[1] * 40, 32, *[2] * 4, 3)"],
)
def test_a_verdict_on_an_output_of_many_dimensions(evaluator: Evaluator, output: str) -> None:
    assert evaluator.evaluate(returning(output)).status is Status.WRONG_SHAPE


def test_the_right_answer_passes_after_all_of_them(evaluator: Evaluator) -> None:
    assert evaluator.evaluate(returning("right")).status is Status.PASSED
