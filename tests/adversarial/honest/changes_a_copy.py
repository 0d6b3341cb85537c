"""PASSED: scales a copy of its input in place, and multiplies views of it that have gaps.

Device: copies of inputs
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        copy = A.t().clone().mul_(0.5)
        halves = [torch.matmul(copy[:, i::2], B.t()[i::2]) for i in range(2)]
        return halves[0].add_(halves[1]).mul_(2)
