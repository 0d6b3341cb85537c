"""WRONG_VALUES: stores answers by the inputs' addresses, once the checks seem to be over.

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
        key = (A.data_ptr(), B.data_ptr(), A.shape)
        if key not in answers or calls < 12:
            answers[key] = torch.matmul(A.T, B.T)
        return answers[key]
