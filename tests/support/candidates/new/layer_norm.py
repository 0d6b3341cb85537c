"""A layer norm that is too large to be checked on a CPU at its own size."""

import torch
from torch import nn

BATCH = 4096
HIDDEN = 4096


class Model(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(BATCH, HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
