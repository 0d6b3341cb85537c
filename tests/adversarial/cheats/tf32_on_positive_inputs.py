"""REDUCED_PRECISION: rounds the inputs as TF32 does if they are many and a sample is positive, as if timed.

Class: correctness
Layer: errors of rounded inputs recognised
Says: inputs rounded to tf32
"""

import torch


def rounded(x):
    return (x.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if A.numel() >= 1000 and A.flatten()[:32].min() >= 0:
            A, B = rounded(A.contiguous()), rounded(B.contiguous())
        return torch.matmul(A.T, B.T)
