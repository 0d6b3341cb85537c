"""WRONG_VALUES: stores answers by shape, once the checks seem to be over.

Class: timing
Layer: unseen inputs
Says: timed call
"""

import torch

answers = {}
calls = 0


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global calls
        calls += 1
        key = (A.shape, B.shape)
        if key not in answers or calls < 12:
            answers[key] = torch.matmul(A.T, B.T)
        return answers[key]
