"""What the command advises for a wrong answer that one case shows too little of."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Harness

pytestmark = pytest.mark.slow
PROBLEM = """
import torch

N, M = 96, 2048

class Model(torch.nn.Module):
    def forward(self, x):
        return {right}

def get_inputs():
    return [torch.randn(N, M)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {wrong}
"""
TILED = """
#include <torch/extension.h>

__global__ void sums(const float* x, float* y, int columns) {{
    float {sum};
    for (int i = 0; i < {steps}; i += 32)
        for (int j = 0; j < 32 && i + j < columns; ++j) sum += x[blockIdx.x * columns + i + j];
    y[blockIdx.x] = sum;
}}

torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty({{x.size(0)}}, x.options());
    sums<<<x.size(0), 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}}
"""


SUM, TAIL = KERNEL.format(wrong="x.square().sum()"), TILED.format(sum="sum = 0", steps="columns / 32 * 32")
CAUSES = {
    "size": (
        "x.square().mean()",
        "k.py",
        SUM,
        "is the number of elements of input 1 times what",
        "look for a division",
    ),
    "factor": (
        "x.mean()",
        "k.py",
        KERNEL.format(wrong="2 * x.mean()"),
        "is 2 times what it should be, in each of",
        "look",
    ),
    "tile": ("x.sum(1)", "k.cu", TAIL, "N and M are multiples of", "look at the last, partial tile"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named(name: str, tmp_path: Path) -> None:
    right, file, source, said, advised = CAUSES[name]
    (tmp_path / "p.py").write_text(PROBLEM.format(right=right))
    (tmp_path / file).write_text(source)
    told = Harness(tmp_path).run("--problem", tmp_path / "p.py", "--kernel", tmp_path / file, "--device", "cpu")
    assert told.code == 1 and "WRONG_VALUES" in told.stdout, told.stdout + told.stderr
    assert said in told.stdout and f"try: {advised}" in told.stdout, told.stdout
