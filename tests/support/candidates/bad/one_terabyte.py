"""RUNTIME_ERROR: 1 TB of device memory.

Says: one_terabyte.py:12:
Says: out of memory
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        room = torch.empty(1 << 38, device=A.device)
        return torch.matmul(A.T, B.T) + room[0]
