"""z = x + 2 y, elementwise, in float32 of shape (N,)."""

import torch

N = 1000


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + 2 * y


def get_inputs():
    return [torch.rand(N), torch.rand(N)]


def get_init_inputs():
    return []
