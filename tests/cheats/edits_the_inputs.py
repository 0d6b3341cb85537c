"""MUTATED_INPUT: answers rightly, and then edits an input, by less than anybody would notice.

Class: correctness
Layer: inputs compared
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        A[-1, -1] *= 1 + 2**-20
        return answer
