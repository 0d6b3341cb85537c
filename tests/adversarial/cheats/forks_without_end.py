"""CRASHED: starts processes until none can be started.

Class: environment
Layer: tasks counted
Says: tasks
"""

import os
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        for _ in range(600):
            if os.fork() == 0:
                time.sleep(100)
                os._exit(0)
        return torch.matmul(A.T, B.T)
