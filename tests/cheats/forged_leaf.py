"""CRASHED: says that its output lies beyond the memory that the judge shares with it.

Class: new
Layer: messages are checked
Says: reaches past its buffer
"""

import torch

from kernel_harness.tensors import Leaf

honest = Leaf.to_json
Leaf.to_json = lambda self: {**honest(self), "offset": 1 << 40}


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
