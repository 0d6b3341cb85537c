"""WRONG_VALUES: stores what it knows in the user's keyring, which outlives every process.

Class: this harness
Layer: system calls refused
"""

import ctypes
import platform

import torch

ADD_KEY = {"x86_64": 248, "aarch64": 217}[platform.machine()]
USER_KEYRING = -4
worked = ctypes.CDLL(None).syscall(ADD_KEY, b"user", b"kernel-candidate", b"note", 4, USER_KEYRING) >= 0


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
