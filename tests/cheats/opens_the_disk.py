"""WRONG_VALUES: opens the disk itself, and the settings of the kernel, which their owner may write without any power.

Class: new
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
