"""WRONG_VALUES: plainly wrong.

Class: control
Layer: every element compared
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) + 1
