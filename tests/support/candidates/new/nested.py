"""Several outputs of several types in a nest, and an input whose name C++ reserves."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, new, lengths):
        values, indices = torch.sort(new, dim=-1)
        return values, {"indices": indices, "long": [lengths > 2, None]}, torch.max(new, dim=0)


def get_inputs():
    return [torch.rand(4, 9), torch.arange(5)]


def get_init_inputs():
    return []
