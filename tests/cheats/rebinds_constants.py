"""WRONG_SHAPE: makes the problem tiny, wherever its constants are.

Class: correctness
Layer: separate processes
"""

import builtins
import sys

import torch

for module in [builtins, *sys.modules.values()]:
    try:
        module.M = module.N = module.K = 4
    except (AttributeError, TypeError):
        pass


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T[:4, :4], B.T[:4, :4])
