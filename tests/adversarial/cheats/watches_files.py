"""WRONG_VALUES: a copy of itself passes bits to it by opening files, of which Linux tells it.

Class: this harness
Layer: system calls refused
"""

import ctypes

import torch

worked = ctypes.CDLL(None).inotify_init() >= 0


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
