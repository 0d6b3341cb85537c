"""PASSED: copies inputs to fixed buffers and does the same work on them each time, like a CUDA graph.

Device: masked inputs, copied to the same addresses
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = {}

    def forward(self, A, B):
        key = (A.shape, B.shape)
        if key not in self.buffers:
            self.buffers[key] = (torch.empty_like(A), torch.empty_like(B))
        a, b = self.buffers[key]
        a.copy_(A)
        b.copy_(B)
        return torch.matmul(a.T, b.T)
