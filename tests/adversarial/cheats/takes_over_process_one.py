"""WRONG_VALUES: writes into the process that reports how it ended.

Class: this harness
Layer: the wall
"""

import os
from pathlib import Path

import torch

worked = False
try:
    os.close(os.open(Path("/proc/1/mem"), os.O_RDWR))
    worked = True
except OSError:
    pass


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
