"""BUILD_ERROR: the linker writes the library to another place than the harness expects.

Class: environment
Layer: builds in a sandbox
Says when emulated: wrote no library
"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = "int one() { return 1; }"
FLAGS = ["-o", "/tmp/elsewhere.so"]
load_inline(name="library_elsewhere", cpp_sources=SOURCE, functions=["one"], extra_ldflags=FLAGS)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
