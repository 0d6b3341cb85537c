"""One input and operators with keywords, as KernelBench writes them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
dim = 33


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()  # noqa: UP008

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x, dim=1).sum(dim=0, keepdim=True)


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
