"""PASSED: is correct and uses no trick.

Class: control
Layer: none
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
