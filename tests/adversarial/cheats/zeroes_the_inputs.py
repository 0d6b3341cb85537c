"""WRONG_VALUES: sets the inputs to zero, so that zero becomes the right answer.

Class: correctness
Layer: answer from the judge's own inputs
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        A.zero_()
        B.zero_()
        return torch.matmul(A.T, B.T)
