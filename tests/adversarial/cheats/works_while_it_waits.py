"""WRONG_VALUES: works only if a thread could run for a second between its build and its checks.

Class: environment
Layer: stopped until its checks
"""

import threading
import time

import torch

steps = 0


def run():
    global steps
    while True:
        time.sleep(0.01)
        steps += 1


threading.Thread(target=run, daemon=True).start()


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ran = steps > 100

    def forward(self, A, B):
        if self.ran:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
