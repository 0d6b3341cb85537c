"""WRONG_VALUES: connects to every socket in the file system, which no network namespace hides.

Class: this harness
Layer: system calls refused
"""

import socket
import stat
from pathlib import Path

import torch


def answers(path):
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(str(path))
        except ConnectionRefusedError:
            return True  # nobody listens any more, but it was let through
        except OSError:
            return False
    return True


def sockets(folder):
    try:
        return [p for p in folder.iterdir() if stat.S_ISSOCK(p.lstat().st_mode)]
    except OSError:
        return []


own = Path("socket")
socket.socket(socket.AF_UNIX).bind(str(own))
worked = any(map(answers, [own, *sockets(Path("/run")), *sockets(Path("/tmp"))]))


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
