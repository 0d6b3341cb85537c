"""WRONG_SHAPE: claims that its output takes a terabyte, so that the judge uses up the memory of the machine.

Class: this harness
Layer: messages are checked
Says: has shape
"""

import torch

from kernel_harness.ipc.tensors import Leaf
from kernel_harness.worker.worker import Worker


def claim(self, output):
    self._outputs = [], []
    self._described = {"tensor": 0}, (Leaf(torch.float32, (1 << 38,), (1,), 0),)
    return False


Worker._deliver = claim


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
