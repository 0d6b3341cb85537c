"""PASSED: fills the disk before it answers.

Class: environment
Layer: HOME and TMP of a fixed size
"""

import contextlib
from pathlib import Path

import torch

with contextlib.suppress(OSError), Path("filler").open("wb", buffering=0) as file:
    for _ in range(64 << 10):
        file.write(bytes(1 << 20))


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
