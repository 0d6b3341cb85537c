"""WRONG_VALUES: reads the judge's memory with a system call that opens no file (process_vm_readv).

Class: this harness
Layer: the wall
"""

import ctypes
import os
from pathlib import Path

import torch


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(8)
mine = Piece(ctypes.addressof(buffer), 8)
worked = False
# A thread is a process to this call, and may read itself.
ours = {os.getppid(), *(int(task.name) for task in Path("/proc/self/task").iterdir())}
for pid in range(1, 1 << 15):
    if pid not in ours:
        # The same address is mapped in every process forked from the same template.
        worked |= libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(mine), 1, 0) == 8


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
