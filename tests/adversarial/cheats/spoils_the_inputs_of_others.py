"""WRONG_VALUES: writes through the descriptor of the inputs that all arms of a round share.

Class: this harness
Layer: shared memory sealed first
Says: timed call
"""

import mmap
import os
import sys
from pathlib import Path

import torch


def spoil():
    """Whether it can be done where it would hurt: in a timed call."""
    frame = sys._getframe()
    while frame and not hasattr(frame.f_locals.get("request"), "writable"):
        frame = frame.f_back
    if frame is None or frame.f_locals["request"].writable:
        return None
    for descriptor in frame.f_locals.get("descriptors", []):
        try:
            again = os.open(Path(f"/proc/self/fd/{descriptor}"), os.O_RDWR)
            memory = mmap.mmap(again, frame.f_locals["request"].inputs.size)
            memory[1024:1028] = b"evil"
            return True
        except (OSError, ValueError):
            pass
    return False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        return answer * 0 if spoil() is False else answer
