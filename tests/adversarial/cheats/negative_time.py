"""PASSED: reports that a call took -1.0 ms, to spoil the mean.

Class: timing
Layer: the judge's own clock
"""

import torch

from kernel_harness.device import Clocked
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.cuda import Cuda


def forging(honest):
    return lambda self, call, *, hold, cold: (honest(self, call, hold=hold, cold=cold)[0], Clocked(-1.0))


for device in (Emulated, Cuda):
    device.timed = forging(device.timed)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
