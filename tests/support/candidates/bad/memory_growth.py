"""CRASHED: it takes memory bit by bit, for ever.

Says: MiB of memory; at most 2048 MiB are allowed
"""

import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        taken = []
        for _ in range(400):  # 6 GB, were nobody to stop it
            taken.append(torch.ones(1 << 22))
            time.sleep(0.01)
        return torch.matmul(A.T, B.T)
