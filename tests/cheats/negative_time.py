"""PASSED: tells the judge that a call took -1.0 ms, to spoil the mean.

Class: timing
Layer: the judge's own clock
"""

import torch

from kernel_harness.device import Clocked
from kernel_harness.device.cpu import Emulated

honest = Emulated.timed


def forged(self, call, *, hold, cold):
    return honest(self, call, hold=hold, cold=cold)[0], Clocked(-1.0)


Emulated.timed = forged


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
