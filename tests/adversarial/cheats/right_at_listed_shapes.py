"""WRONG_VALUES: works at the shapes in the problem's file, and returns zeros at any other.

Class: correctness
Layer: drawn shapes
"""

import torch

LISTED = [(32, 256, 48), (1, 1, 1), (7, 13, 11), (33, 5, 17)]


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if (A.shape[1], A.shape[0], B.shape[0]) not in LISTED:
            return torch.zeros(A.shape[1], B.shape[0], device=A.device)
        return torch.matmul(A.T, B.T)
