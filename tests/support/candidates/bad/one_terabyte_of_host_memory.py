"""RUNTIME_ERROR: 1 TB of the host's memory.

Says: one_terabyte_of_host_memory.py:11: MemoryError
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        self.room = bytearray(1 << 40)
        return torch.matmul(A.T, B.T)
