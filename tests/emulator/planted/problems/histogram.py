"""How often each of BINS values occurs in x, which is int32 of shape (N,) with values from 0 to BINS - 1."""

import torch

N, BINS = 3000, 16


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.bincount(x.long(), minlength=BINS).to(torch.int32)


def get_inputs():
    return [torch.randint(0, BINS, (N,), dtype=torch.int32)]


def get_init_inputs():
    return []
