"""CRASHED: claims that all elements of its output share one address.

Class: this harness
Layer: messages are checked
"""

import torch

from kernel_harness.ipc.tensors import Leaf

honest = Leaf.to_json
Leaf.to_json = lambda self: {**honest(self), "stride": [1 << 40] * len(self.shape)}


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
