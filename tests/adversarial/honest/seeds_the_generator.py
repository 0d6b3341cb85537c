"""PASSED: seeds the random generator for a purpose of its own.

Device: the generator of the device
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        torch.manual_seed(0)
        torch.rand(3)
        return torch.matmul(A.T, B.T)
