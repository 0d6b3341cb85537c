"""WRONG_VALUES: works at the timed shape, and returns zeros at any other.

Class: correctness
Layer: odd shapes, every element
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if A.shape != (256, 32):
            return torch.zeros(A.shape[1], B.shape[0], device=A.device)
        return torch.matmul(A.T, B.T)
