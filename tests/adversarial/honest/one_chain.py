"""PASSED: adds all products in one sequential float32 sum, whose error is larger than the reference's."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        total = torch.zeros(A.shape[1], B.shape[0], device=A.device)
        for k in range(A.shape[0]):
            total += A[k][:, None] * B[:, k][None, :]
        return total
