"""CRASHED: tells the judge that a call took float("nan") ms, to spoil the mean.

Class: timing
Layer: messages are checked
"""

import torch

from kernel_harness.device import Clocked
from kernel_harness.device.cpu import Emulated

honest = Emulated.timed


def forged(self, call, *, hold, cold):
    return honest(self, call, hold=hold, cold=cold)[0], Clocked(float("nan"))


Emulated.timed = forged


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
