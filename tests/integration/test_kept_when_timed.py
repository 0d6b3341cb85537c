"""A candidate that counts on what it has left in its output is found in timed calls, after checks at other shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernel_harness

PROBLEM = """
import torch

N, C = 64, 48


class Model(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, index):
        return torch.nn.functional.one_hot(index, self.classes).float()


def get_inputs():
    return [torch.randint(0, C, (N,))]


def get_init_inputs():
    return [C]
"""
# Honest in the checks. Later it takes back the last call's ones, and writes no zeros.
KEPT = """
import torch

CALLS = 0


class ModelNew(torch.nn.Module):
    out = last = None

    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, index):
        global CALLS
        CALLS += 1
        if self.out is None or CALLS < 10:
            self.out = torch.zeros(len(index), self.classes, device=index.device)
        else:
            self.out.scatter_(1, self.last, 0.0)
        self.last = index[:, None].clone()
        return self.out.scatter_(1, self.last, 1.0)
"""


@pytest.mark.slow
def test_a_kernel_that_keeps_its_output_in_timed_calls_is_wrong(tmp_path: Path) -> None:
    problem = tmp_path / "rows.py"
    problem.write_text(PROBLEM)
    reason = kernel_harness.evaluate(problem, KEPT).reason
    assert "The output of a timed call is wrong" in reason and "nan" in reason
