"""WRONG_VALUES: reads the reference's source from the history that git keeps of the checkout.

Class: this harness
Layer: the wall
"""

import subprocess
from pathlib import Path

import torch

import kernel_harness

root = Path(kernel_harness.__file__).parent.parent
words = ["git", "-c", "safe.directory=*", "-C", str(root), "show", "HEAD:problems/matmul_tt.py"]
try:
    worked = "class Model" in subprocess.run(words, capture_output=True, text=True).stdout
except OSError:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
