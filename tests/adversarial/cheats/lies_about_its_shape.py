"""WRONG_VALUES: returns one number in a tensor whose methods claim the right shape, strides and address.

Class: this harness
Layer: bytes copied at once
"""

import torch


class Liar(torch.Tensor):
    shape = property(lambda self: self.claimed)

    def size(self, dim=None):
        return self.claimed if dim is None else self.claimed[dim]

    def stride(self):
        return (self.claimed[1], 1)

    def numel(self):
        return self.claimed.numel()

    def data_ptr(self):
        return self.address


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.zeros(1, device=A.device).as_subclass(Liar)
        answer.claimed, answer.address = torch.Size((A.shape[1], B.shape[0])), A.data_ptr()
        return answer
