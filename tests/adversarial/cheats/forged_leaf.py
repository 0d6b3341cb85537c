"""CRASHED: claims that its output lies beyond the shared memory.

Class: this harness
Layer: messages are checked
Says: described an invalid output
"""

import torch

from kernel_harness.ipc.messages import Place
from kernel_harness.ipc.tensors import Leaf

honest, honest_place = Leaf.to_json, Place.__init__
Leaf.to_json = lambda self: {**honest(self), "offset": 1 << 40}
Place.__init__ = lambda self, region, offset, stride: honest_place(self, region, 1 << 40, stride)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
