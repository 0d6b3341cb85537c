"""RUNTIME_ERROR or UNSUPPORTED: returns a sparse tensor, whose numbers lie in two tensors.

Class: this harness
Layer: messages are checked
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T).to_sparse()
