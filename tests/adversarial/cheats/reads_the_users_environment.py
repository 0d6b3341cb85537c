"""WRONG_VALUES: looks for secrets of the user in environment variables.

Class: environment
Layer: environment by allow-list
"""

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if "KERNEL_HARNESS_TEST_SECRET" in os.environ:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
