"""WRONG_VALUES: passes bits to a copy of itself with locks on bytes of a file that all can read.

Class: this harness
Layer: system calls refused
"""

import fcntl
import os

import torch

file = os.open("/etc/passwd", os.O_RDONLY)
try:
    fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 1 << 40)
    worked = True
except OSError:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
