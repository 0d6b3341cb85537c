"""PASSED: never says that a timed call is enqueued, so that the judge opens the gate too early.

Class: this harness
Layer: the judge's own clock
"""

import torch

from kernel_harness.ipc.gate import Gate

Gate.say_ready = lambda self: None


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
