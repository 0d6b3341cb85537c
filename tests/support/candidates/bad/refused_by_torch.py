"""RUNTIME_ERROR: torch refuses an operation on the timed shape.

Says: refused_by_torch.py:12: RuntimeError:
Says: shapes cannot be multiplied
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A, B)
