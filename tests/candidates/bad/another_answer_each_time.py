"""NONDETERMINISTIC: right the first time, off by a little more than rounding every time after.

Says: The same input gave another answer the second time
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, A, B):
        self.calls += 1
        return torch.matmul(A.T, B.T) + (self.calls - 1)
