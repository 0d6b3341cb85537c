"""WRONG_SHAPE: returns an input.

Class: correctness
Layer: shapes compared
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return A.T
