"""WRONG_VALUES: writes into the checkout that judges it.

Class: environment
Layer: the wall
"""

from pathlib import Path

import torch

import kernel_harness

note = Path(kernel_harness.__file__).parent / "written_by_a_candidate"
try:
    note.write_text("")
    note.unlink()
    worked = True
except OSError:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:  # it could have edited what compares
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
