"""WRONG_VALUES: the first call does the work of all, the rest return it.

Class: timing
Layer: inputs nobody has seen
"""

import torch


class ModelNew(torch.nn.Module):
    answers = {}

    def forward(self, A, B):
        return self.answers.setdefault(A.shape, torch.matmul(A.T, B.T))
