"""CRASHED: claims that its output lies beyond the shared memory.

Class: this harness
Layer: messages are checked
Says: it takes more than
"""

import torch

from kernel_harness.ipc.tensors import Leaf

honest = Leaf.to_json
Leaf.to_json = lambda self: {**honest(self), "offset": 1 << 40}


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
