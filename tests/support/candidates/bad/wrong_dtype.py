"""WRONG_DTYPE: float64 instead of float32.

Says: is torch.float64, expected torch.float32
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T.double(), B.T.double())
