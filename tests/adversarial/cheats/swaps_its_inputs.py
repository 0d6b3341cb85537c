"""PASSED or RUNTIME_ERROR: replaces the memory of its input tensors and shrinks them, so that nothing can be compared.

Class: correctness
Layer: inputs compared
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        A.data = torch.zeros_like(A)
        A.resize_(0)
        return answer
