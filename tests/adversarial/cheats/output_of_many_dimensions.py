"""WRONG_SHAPE: returns a tensor of as many dimensions as torch allows, which is more than messages do.

Class: this harness
Layer: messages are checked
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)[(None,) * 62]
