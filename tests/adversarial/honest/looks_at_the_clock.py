"""PASSED: times its own calls for a log."""

import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        start = time.perf_counter()
        C = torch.matmul(A.T, B.T)
        print(f"{time.perf_counter() - start:.6f} s")
        return C
