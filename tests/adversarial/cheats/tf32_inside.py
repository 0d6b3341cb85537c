"""REDUCED_PRECISION: rounds the inputs as TF32 does.

Class: correctness
Layer: float64 oracle
"""

import torch


def rounded(x):
    return (x.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(rounded(A.contiguous()).T, rounded(B.contiguous()).T)
