"""PASSED or CRASHED: a process forks and ends over and over, so that a stop may miss it.

Class: this harness
Layer: other workers are stopped
"""

import os

import torch

started = False


def run():
    """One link of a chain: each lives for a moment only."""
    while True:
        if os.fork():
            os._exit(0)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global started
        if not started:
            started = True
            if os.fork() == 0:
                run()
        return torch.matmul(A.T, B.T)
