"""WRONG_VALUES: leaves out the last terms of every sum.

Class: correctness
Layer: zero-mean inputs
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        terms = A.shape[0] - A.shape[0] // 64
        return torch.matmul(A.T[:, :terms], B.T[:terms])
