"""The case with random parameters finds kernels that ignore parameters, and accuses none that computes rightly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_harness.api import Evaluator
from kernel_harness.core.status import Status
from kernel_harness.problem.distributions import PARAMETERS

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        return self.norm(self.linear(x))

def get_inputs():
    return [torch.rand(64, 32)]
"""
REMARK = (
    "checked at their initial values only, so a kernel that ignores them would pass: norm.weight (1), norm.bias (0)"
)


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    file = tmp_path_factory.mktemp("problem") / "p.py"
    file.write_text(PROBLEM)
    with Evaluator(file, device="cpu", budget_s=0.1) as made:
        yield made


def candidate(*, init: str = "pass", forward: str = "return super().forward(x)") -> str:
    return (
        f"{PROBLEM}\nclass ModelNew(Model):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        {forward}\n"
    )


def test_a_kernel_that_reads_its_parameters_passes_without_a_remark(evaluator: Evaluator) -> None:
    result = evaluator.evaluate(candidate())
    assert result.status is Status.PASSED and "parameters" not in result.reason, result.reason
    assert PARAMETERS in {check.distribution for check in result.checks}


@pytest.mark.parametrize(
    "source",
    [
        candidate(init="self.packed = torch.stack((self.norm.weight, self.norm.bias)).cuda()",
                  forward="return F.layer_norm(self.linear(x), (32,), *self.packed)"),
        candidate(init="self.packed = [self.norm.weight.clone().cuda(), {'bias': self.norm.bias.clone().cuda()}]",
                  forward="return F.layer_norm(self.linear(x), (32,), self.packed[0], self.packed[1]['bias'])"),
        candidate(init="self.register_buffer('packed', self.norm.weight.clone(), persistent=False)",
                  forward="return F.layer_norm(self.linear(x), (32,), self.packed, self.norm.bias)"),
        candidate(init="self.register_buffer('packed', self.norm.weight.clone())",
                  forward="return F.layer_norm(self.linear(x), (32,), self.packed, self.norm.bias)"),
        candidate(init="w, b = self.norm.weight.clone().cuda(), self.norm.bias.clone().cuda(); "
                       "self.run = lambda x: F.layer_norm(x, (32,), w, b)",
                  forward="return self.run(self.linear(x))"),
        candidate(init="self.packed = self.norm.weight.detach().numpy().copy(); self.first = self.norm.bias[0].item()",
                  forward="self.norm.bias[0] = self.first; w = torch.tensor(self.packed).cuda(); "
                          "return F.layer_norm(self.linear(x), (32,), w, self.norm.bias)"),
        candidate(init="self.scale = self.norm.weight.to_sparse(); self.seen = []; self.seen.append(self.seen)"),
    ],
    ids=["an attribute", "a list", "a buffer", "a persistent buffer", "a function", "numbers", "a sparse tensor"],
)  # fmt: skip
def test_a_copy_that_the_constructor_makes_has_the_random_parameters(evaluator: Evaluator, source: str) -> None:
    result = evaluator.evaluate(source)
    assert result.status is Status.PASSED and "parameters" not in result.reason, result.reason
    assert PARAMETERS in {check.distribution for check in result.checks}


@pytest.mark.parametrize(
    "source",
    [
        candidate(init="self.scale = self.norm.weight; self.shift = self.norm.bias; del self.norm",
                  forward="return F.layer_norm(self.linear(x), (32,), self.scale, self.shift)"),
        candidate(init="self.linear.weight.data *= 2",
                  forward="return self.norm(F.linear(x, self.linear.weight / 2, self.linear.bias))"),
        candidate(init="assert (self.norm.weight == 1).all()"),
        candidate(init="self.norm.weight.data.fill_(1)"),
    ],
    ids=["other names", "a weight times a constant", "a check of its own", "a number set by itself"],
)  # fmt: skip
def test_a_kernel_with_parameters_of_its_own_passes_with_a_remark(evaluator: Evaluator, source: str) -> None:
    result = evaluator.evaluate(source)
    assert result.status is Status.PASSED, result.reason
    assert REMARK in result.reason
    assert PARAMETERS not in {check.distribution for check in result.checks}


def test_a_kernel_that_ignores_its_parameters_has_wrong_values(evaluator: Evaluator) -> None:
    result = evaluator.evaluate(candidate(forward="return F.layer_norm(self.linear(x), (32,))"))
    assert result.status is Status.WRONG_VALUES
    assert "With those that the constructor sets, the output was right." in result.reason
    assert [check.distribution for check in result.checks if not check.passed] == [PARAMETERS]


IGNORES = """
#include <torch/extension.h>
__global__ void normalise(const float* x, float* y, int columns) {
    const float* row = x + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (int i = 0; i < columns; ++i) sum += row[i];
    for (int i = 0; i < columns; ++i) squares += (row[i] - sum / columns) * (row[i] - sum / columns);
    const float scale = rsqrtf(squares / columns + 1e-5f);
    for (int i = 0; i < columns; ++i) y[blockIdx.x * columns + i] = (row[i] - sum / columns) * scale;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    normalise<<<x.size(0), 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""


def test_a_cu_file_that_ignores_the_parameters_is_told_how_to_get_them(tmp_path: Path) -> None:
    linear = "        self.linear = nn.Linear(32, 32)\n"
    (tmp_path / "p.py").write_text(PROBLEM.replace(linear, "").replace("self.norm(self.linear(x))", "self.norm(x)"))
    (tmp_path / "k.cu").write_text(IGNORES)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(tmp_path / "k.cu")
    assert result.status is Status.WRONG_VALUES
    assert "forward of a .cu file gets the parameters if it names all of them after its inputs" in result.reason


def test_a_kernel_that_declines_other_parameters_fails(evaluator: Evaluator) -> None:
    declines = "if (self.norm.weight != 1).any(): raise ValueError('only for a weight of 1')\n        "
    result = evaluator.evaluate(candidate(forward=f"{declines}return super().forward(x)"))
    assert result.status is Status.RUNTIME_ERROR
    assert "only for a weight of 1" in result.reason


def test_a_model_of_many_parameters_is_checked_with_random_ones(tmp_path: Path) -> None:
    deep = PROBLEM.replace("self.norm = nn.LayerNorm(32)", "self.norm = nn.Sequential(*map(nn.LayerNorm, [32] * 200))")
    (tmp_path / "p.py").write_text(deep)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(f"{deep}\nModelNew = Model\n")
    assert result.status is Status.PASSED, result.reason
    assert PARAMETERS in {check.distribution for check in result.checks}
