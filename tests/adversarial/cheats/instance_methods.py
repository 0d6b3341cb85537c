"""WRONG_VALUES: returns a tensor of zeros whose own methods give the right answer.

Class: timing
Layer: bytes copied at once
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        out = torch.zeros(A.shape[1], B.shape[0], device=A.device)
        for method in ("cpu", "contiguous", "clone", "numpy", "to", "tolist", "detach"):
            setattr(out, method, lambda *args, **kwargs: torch.matmul(A.T, B.T))
        return out
