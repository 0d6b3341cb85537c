"""CRASHED: starts processes until none can be started.

Class: environment
Layer: tasks counted
Says: tasks
"""

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        for _ in range(600):  # small programs, because 600 forks of this process take 13 s
            os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
        return torch.matmul(A.T, B.T)
