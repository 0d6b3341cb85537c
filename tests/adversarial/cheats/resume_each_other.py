"""PASSED or CRASHED: helper processes resume each other, so that they run on while the others are timed.

Class: timing
Layer: other workers are stopped
"""

import os
import signal

import torch

HELPERS = 4
started = False


def run():
    """Sends SIGCONT to all processes of the group: to the worker, the helpers and itself."""
    while True:
        os.kill(0, signal.SIGCONT)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global started
        if not started:
            started = True
            for _ in range(HELPERS):
                if os.fork() == 0:
                    run()
        return torch.matmul(A.T, B.T)
