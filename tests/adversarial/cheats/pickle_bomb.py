"""RUNTIME_ERROR: returns an object that runs code when it is unpickled.

Class: environment
Layer: messages are data
"""

import os

import torch


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/kernel-harness-bomb",)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return Bomb()
