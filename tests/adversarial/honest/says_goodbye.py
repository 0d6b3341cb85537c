"""PASSED: registers a function that runs when the process ends."""

import atexit

import torch

atexit.register(print, "goodbye")


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
