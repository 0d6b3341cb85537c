"""WRONG_VALUES: the first call computes the answers of all calls, later calls return them.

Class: timing
Layer: unseen inputs
"""

import torch

answers = {}


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return answers.setdefault(A.shape, torch.matmul(A.T, B.T))
