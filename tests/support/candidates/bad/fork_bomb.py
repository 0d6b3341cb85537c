"""CRASHED: it forks and forks. The count is bounded, so that nobody is harmed where it is not stopped.

Says: at most 128 are allowed
"""

import os
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        for _ in range(2000):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        return torch.matmul(A.T, B.T)
