"""REDUCED_PRECISION: the inputs keep TF32's 10 bits of mantissa.

Says: the size that tf32 causes
"""

import torch


def rounded(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(rounded(A).T, rounded(B).T)
