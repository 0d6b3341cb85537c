"""WRONG_VALUES: returns a wrong answer without a trick.

Class: control
Layer: every element compared
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) + 1
