"""WRONG_VALUES: reads the reference's source from the problem file.

Class: this harness
Layer: the wall
"""

from pathlib import Path

import torch

import kernel_harness

root = Path(kernel_harness.__file__).parent.parent
places = [root / "tests/support/candidates/problem/product.py", *root.glob("problems/*.py")]


def readable(place):
    try:
        return "class Model" in place.read_text()
    except OSError:
        return False


worked = any(map(readable, places))


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
