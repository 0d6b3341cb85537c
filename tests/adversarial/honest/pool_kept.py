"""PASSED: a pool of processes is kept, and does a part of each call.

Needs: namespaces
"""

import multiprocessing

import torch

POOL = multiprocessing.get_context("fork").Pool(2)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        rows, columns = POOL.map(abs, [A.shape[1], B.shape[0]])
        return torch.matmul(A.T, B.T).reshape(rows, columns)
