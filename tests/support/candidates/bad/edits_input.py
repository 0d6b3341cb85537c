"""MUTATED_INPUT: an input is scaled in place.

Says: Input 2 was changed
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        product = torch.matmul(A.T, B.T)
        B.mul_(2)
        return product
