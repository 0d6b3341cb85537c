"""WRONG_VALUES: computes whole tiles only.

Class: correctness
Layer: odd shapes, every element
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        rows = A.shape[1] // 16 * 16
        out = torch.zeros(A.shape[1], B.shape[0], device=A.device)
        out[:rows] = torch.matmul(A.T[:rows], B.T)
        return out
