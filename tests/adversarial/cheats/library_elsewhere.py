"""PASSED: asks the linker for another place of the library; the harness names its own last, as torch does.

Class: environment
Layer: builds in a sandbox
"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = "int one() { return 1; }"
FLAGS = ["-o", "/tmp/elsewhere.so"]
load_inline(name="library_elsewhere", cpp_sources=SOURCE, functions=["one"], extra_ldflags=FLAGS)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
