"""PASSED: leaves threads and processes running that keep every core busy while the baseline is timed.

Class: timing
Layer: other workers are stopped
"""

import os
import threading

import torch


def burn():
    while True:
        torch.ones(64, 64).sum()


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        threading.Thread(target=burn, daemon=True).start()
        if os.fork() == 0:
            while True:
                pass

    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
