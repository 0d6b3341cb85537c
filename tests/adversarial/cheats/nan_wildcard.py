"""WRONG_VALUES: answers with nan, which some comparisons accept.

Class: correctness
Layer: finite mask
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.full((A.shape[1], B.shape[0]), float("nan"), device=A.device)
