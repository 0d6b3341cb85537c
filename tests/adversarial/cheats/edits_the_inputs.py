"""MUTATED_INPUT: answers correctly, and then changes an input by a tiny amount.

Class: correctness
Layer: inputs compared
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        A[-1, -1] *= 1 + 2**-20
        return answer
