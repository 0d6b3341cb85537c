"""PASSED: stores its launch configuration by shape.

Device: new inputs in each call
"""

import functools

import torch


@functools.cache
def tile(M, N):
    return 16 if M * N < 4096 else 64


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) if tile(A.shape[1], B.shape[0]) else None
