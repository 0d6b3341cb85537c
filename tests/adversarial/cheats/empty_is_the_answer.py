"""WRONG_VALUES: returns uninitialised memory, where the reference's answer may have been.

Class: correctness
Layer: poisoned memory
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.empty(A.shape[1], B.shape[0], device=A.device)
