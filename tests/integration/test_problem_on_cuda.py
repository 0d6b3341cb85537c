"""A problem file in the form of KernelBench's examples, which call `.cuda()`, judged under emulation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_harness.api import evaluate
from kernel_harness.core.status import Status

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, scale) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        return (a + b) * self.scale.cuda()

def get_inputs():
    a = torch.randn(3, 128).cuda()
    b = torch.randn(3, 128, device="cuda")
    return [a, b]

def get_init_inputs():
    return [torch.full((), 2.0).to("cuda")]
"""

KERNEL = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, a, b):
        assert a.is_cuda and b.is_cuda and self.scale.is_cuda
        return a * self.scale + b * self.scale
"""


def test_a_problem_that_calls_cuda_is_judged_and_the_caller_s_generator_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "add.py").write_text(PROBLEM)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    result = evaluate(tmp_path / "add.py", KERNEL, device="cpu", budget_s=0.2)

    assert result.status is Status.PASSED, result.reason
    assert torch.equal(torch.get_rng_state(), before)
