"""PASSED: uses an input as scratch memory, and restores it before it returns."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        kept, answer = A.clone(), torch.matmul(A.T, B.T)
        A.zero_()
        A.copy_(kept)
        return answer
