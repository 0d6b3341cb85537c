"""WRONG_VALUES: answers with inf, which some comparisons accept.

Class: correctness
Layer: finite mask
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.full((A.shape[1], B.shape[0]), float("inf"), device=A.device)
