"""WRONG_VALUES: creates a user namespace in which it is root, and mounts the disk writable.

Class: this harness
Layer: the wall
"""

import ctypes

import torch

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, REMOUNT, BIND = 0x20000, 0x10000000, 32, 4096
libc.unshare(NEWUSER | NEWNS)
worked = libc.mount(b"none", b"/", None, REMOUNT | BIND, None) == 0


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
