"""WRONG_SHAPE: claims that its output takes a terabyte, so that the judge uses up the memory of the machine.

Class: this harness
Layer: messages are checked
Says: has shape
"""

import torch

from kernel_harness.ipc.tensors import Leaf
from kernel_harness.worker.outputs import Outputs


def claim(self):
    return {"tensor": 0}, (Leaf(torch.float32, (1 << 38,), (1,), 0),), (None,), ()


Outputs.described = claim
Outputs.copy_rest = lambda self: None


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
