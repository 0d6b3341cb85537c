"""WRONG_VALUES: opens the raw disk, and the kernel settings that root may write without capabilities.

Class: this harness
Layer: the wall
"""

import os
import stat
from pathlib import Path

import torch


def can_write(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


settings = [Path("/proc/sys/kernel/core_pattern"), Path("/proc/sysrq-trigger"), Path("/proc/sys/vm/drop_caches")]
disks = [p for p in Path("/dev").iterdir() if stat.S_ISBLK(p.lstat().st_mode)]
worked = any(map(can_write, [*settings, *disks]))


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
