"""WRONG_VALUES or PASSED: stores answers by the identity of the input objects; without a repeated object it computes.

Class: timing
Layer: unseen inputs
"""

import torch

answers = {}
calls = 0


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global calls
        calls += 1
        key = (id(A), id(B), A.shape)
        if key not in answers or calls < 12:
            # Dead objects' numbers are used again.
            answers[key] = torch.matmul(A.T, B.T)
        return answers[key]
