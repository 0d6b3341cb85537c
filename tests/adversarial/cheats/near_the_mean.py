"""WRONG_VALUES: returns the average value of the product.

Class: correctness
Layer: zero-mean inputs
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.full((A.shape[1], B.shape[0]), A.shape[0] / 4, device=A.device)
