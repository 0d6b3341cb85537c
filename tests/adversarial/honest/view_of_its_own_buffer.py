"""PASSED: the output is a view into a larger buffer of its own.

Device: copies of outputs
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        M, N = A.shape[1], B.shape[0]
        buffer = torch.empty(M + 2, N, device=A.device)
        buffer[1 : M + 1] = torch.matmul(A.T, B.T)
        return buffer[1 : M + 1]
