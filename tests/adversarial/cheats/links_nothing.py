"""BUILD_ERROR: the linker only prints its version, and writes no library.

Class: environment
Layer: builds in a sandbox
Says: wrote no library
"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = "int one() { return 1; }"
FLAGS = ["--version"]
load_inline(name="links_nothing", cpp_sources=SOURCE, functions=["one"], extra_ldflags=FLAGS)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
