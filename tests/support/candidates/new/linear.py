"""Weights, arguments of the model, and a helper and a constant of the file's own."""

import math

import torch
from torch import nn

BATCH = 5
SLOPE = 0.1


def activation(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, SLOPE * x)


def unused() -> float:
    return math.pi


class Model(nn.Module):
    def __init__(self, features_in: int, features_out: int):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.register_buffer("offset", torch.ones(features_out))

    def forward(self, x):
        return activation(self.linear(x)) + self.offset


def get_inputs():
    return [torch.rand(BATCH, 7)]


def get_init_inputs():
    return [7, 3]
