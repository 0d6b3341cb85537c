"""CRASHED: tells the judge that a call took float("nan") ms, to spoil the mean.

Class: timing
Layer: messages are checked
"""

import torch

from kernel_harness.device.cpu import Emulated

honest = Emulated.timed
Emulated.timed = lambda self, call, *, cold: (honest(self, call, cold=cold)[0], float("nan"))


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
