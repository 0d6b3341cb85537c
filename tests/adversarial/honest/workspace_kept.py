"""PASSED: allocates a workspace once and keeps it between calls.

Device: poisoned memory
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = None

    def forward(self, A, B):
        shape = (A.shape[1], B.shape[0])
        if self.workspace is None or self.workspace.shape != shape:
            self.workspace = torch.empty(shape, device=A.device)
        torch.matmul(A.T, B.T, out=self.workspace)
        return self.workspace.clone()
