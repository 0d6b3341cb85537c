"""RUNTIME_ERROR: every element is an output of its own.

Says: 1536 tensors
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return list(torch.matmul(A.T, B.T).flatten())
