"""RUNTIME_ERROR: an exception in forward.

Says: forward_raises.py:11: KeyError: 'weight'
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) * {}["weight"]
