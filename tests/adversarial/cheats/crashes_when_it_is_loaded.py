"""CRASHED: its library ends the process while it is loaded.

Class: environment
Layer: every reply must arrive
"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = "struct Now { Now() { __builtin_trap(); } } now; int one() { return 1; }"
load_inline(name="crashes_when_it_is_loaded", cpp_sources=SOURCE, functions=["one"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
