"""The small problem that most tests judge candidates of, and a candidate that solves it."""

from __future__ import annotations

from kernel_harness.problem import problem as problems

from .command import CANDIDATES

PROBLEM_FILE = CANDIDATES / "problem" / "product.py"
PROBLEM = problems.load("product", PROBLEM_FILE)
RIGHT = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
"""
