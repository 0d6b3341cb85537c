"""NONDETERMINISTIC: reads the inputs of each call at the address of the first call's, as a CUDA graph of them does.

Class: correctness
Layer: inputs move for the second call
Says: The second call
"""

import torch


class ModelNew(torch.nn.Module):
    kept = None

    def forward(self, A, B):
        if self.kept is None or self.kept[0].shape != A.shape or self.kept[1].shape != B.shape:
            self.kept = A.view(A.shape), B.view(B.shape)
        A, B = self.kept
        return torch.matmul(A.T, B.T)
