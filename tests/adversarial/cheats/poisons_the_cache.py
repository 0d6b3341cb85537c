"""WRONG_VALUES: writes into the cache from which other candidates' libraries are loaded.

Class: environment
Layer: the wall
"""

import os
from pathlib import Path

import torch

note = Path(os.environ["KERNEL_HARNESS_CACHE"]) / "written_by_a_candidate"
try:
    note.write_text("")
    note.unlink()
    worked = True
except OSError:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
