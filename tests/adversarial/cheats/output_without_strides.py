"""RUNTIME_ERROR: returns a nested tensor, which has a layout with strides and no strides.

Class: this harness
Layer: messages are checked
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.nested.nested_tensor([torch.matmul(A.T, B.T)])
