"""WRONG_SHAPE: makes the problem tiny by changing its constants.

Class: correctness
Layer: separate processes
"""

import builtins
import contextlib
import sys

import torch

for module in [builtins, *sys.modules.values()]:
    with contextlib.suppress(AttributeError, TypeError):
        module.M = module.N = module.K = 4


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T[:4, :4], B.T[:4, :4])
