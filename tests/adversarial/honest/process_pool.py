"""PASSED: a pool of processes prepares a table.

Needs: namespaces
"""

import multiprocessing

import torch

with multiprocessing.get_context("fork").Pool(2) as pool:
    SQUARES = pool.map(abs, range(-4, 4))


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
