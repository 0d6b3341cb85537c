"""WRONG_VALUES: works five times, then returns its last output.

Class: correctness
Layer: unseen inputs
Says: timed call
"""

import torch


class ModelNew(torch.nn.Module):
    calls, answer = 0, None

    def forward(self, A, B):
        self.calls += 1
        if self.calls <= 5 or self.answer is None:
            self.answer = torch.matmul(A.T, B.T)
        return self.answer
