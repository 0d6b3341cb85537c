"""CRASHED: sends each reply a second time, so that the judge takes the copy for the next call's.

Class: this harness
Layer: replies name their request
Says: malformed message
"""

import torch

from kernel_harness.ipc import envelope, messages

honest = envelope.send


def twice(channel, message, number="", descriptors=(), timeout_s=None):
    honest(channel, message, number, descriptors, timeout_s)
    if isinstance(message, messages.Called):
        honest(channel, message, number, descriptors, timeout_s)


envelope.send = twice


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
