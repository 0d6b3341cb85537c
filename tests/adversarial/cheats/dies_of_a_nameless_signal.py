"""CRASHED: ends itself with a signal that Python has no name for.

Class: this harness
Layer: every reply must arrive
Says: signal 37
"""

import os
import signal

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        os.kill(os.getpid(), signal.SIGRTMIN + 3)
        return torch.matmul(A.T, B.T)
