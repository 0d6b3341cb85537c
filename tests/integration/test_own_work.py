"""How much of a candidate's output its own kernels make, which the harness looks at after the timing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness import Evaluator, Status

pytestmark = pytest.mark.slow

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(64, 64)]
"""
KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

void run(torch::Tensor x, torch::Tensor y) {
    int n = x.numel();
    twice<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
"""
built = load_inline("k", "void run(torch::Tensor x, torch::Tensor y);", SOURCE, functions=["run"])
buffers = {}

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = buffers.setdefault(float(x.sum()), torch.empty_like(x))
        built.run(x, y)
        return y
'''


def test_an_old_result_in_a_buffer_for_equal_inputs_is_not_taken_for_work_of_a_library(tmp_path: Path) -> None:
    """No check but the first, whose result the buffer keeps, has its inputs at the timed shape."""
    (tmp_path / "p.py").write_text(f"{PROBLEM}\nSTRESS = {{}}\n")
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(KERNEL)

    assert (result.status, result.reason) == (Status.PASSED, "")


def test_a_reference_that_refuses_the_inputs_of_another_distribution_is_not_called_with_them(tmp_path: Path) -> None:
    refuses = "        if (x < 0).any():\n            raise ValueError('negative')\n        return x * 2\n"
    (tmp_path / "p.py").write_text(PROBLEM.replace("        return x * 2\n", refuses))
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(KERNEL)

    assert result.status is Status.PASSED, result.reason
