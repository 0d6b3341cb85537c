"""PASSED: prints more than any pipe or file should hold.

Class: environment
Layer: output drained and capped
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        print("x" * (1 << 20), flush=True)
        return torch.matmul(A.T, B.T)
