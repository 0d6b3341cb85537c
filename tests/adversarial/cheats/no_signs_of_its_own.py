"""WRONG_VALUES: ignores the signs of inputs if a sample of them is positive, as the problem's own are.

Class: correctness
Layer: inputs that look like the problem's own
Says: timed call
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if min(float(x.flatten()[::97].min()) for x in (A, B)) >= 0 and A.numel() > 1000:
            A, B = A.abs(), B.abs()  # stands for a kernel that does not read the signs
        return torch.matmul(A.T, B.T)
