"""PASSED: keeps its output in a parameter."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Parameter(torch.empty(0))

    def forward(self, A, B):
        self.out.data = torch.matmul(A.T, B.T)
        return self.out
