"""PASSED: a kernel that does not compile is replaced by torch, which the candidate may decide."""

import torch
from torch.utils.cpp_extension import load_inline

try:
    ops = load_inline(name="falls_back", cpp_sources="", cuda_sources="this is no C++", functions=["forward"])
except Exception:
    ops = None


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) if ops is None else ops.forward(A, B)
