"""PASSED: frees memory after every call.

Device: memory between calls
"""

import gc

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        C = torch.matmul(A.T, B.T)
        gc.collect()
        torch.cuda.empty_cache()
        return C
