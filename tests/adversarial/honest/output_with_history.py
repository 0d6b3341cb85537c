"""PASSED: computes with gradients switched on, so its output has a history."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        with torch.enable_grad():
            return torch.matmul(A.T, B.T) * torch.ones((), device=A.device, requires_grad=True)
