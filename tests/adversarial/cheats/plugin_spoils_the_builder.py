"""BUILD_ERROR: a compiler flag loads the candidate's code into the compiler.

Class: this harness
Layer: builds in a sandbox
"""

import torch
from torch.utils.cpp_extension import load_inline

load_inline(
    name="plugin", cpp_sources="int one() { return 1; }", functions=["one"], extra_cflags=["-fplugin=/proc/self/exe"]
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
