"""WRONG_SHAPE: the answer is transposed.

Says: has shape (48, 32), expected (32, 48)
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(B, A)
