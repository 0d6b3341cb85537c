"""WRONG_VALUES: returns the output of the call before.

Class: correctness
Layer: unseen inputs
"""

import torch


class ModelNew(torch.nn.Module):
    before = None

    def forward(self, A, B):
        answer = self.before
        self.before = torch.matmul(A.T, B.T)
        return self.before * 0 if answer is None or answer.shape != self.before.shape else answer
