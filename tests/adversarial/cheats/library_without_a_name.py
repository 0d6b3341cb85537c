"""BUILD_ERROR: the name of its library is a path that leaves the folder of the build.

Class: environment
Layer: builds in a sandbox
"""

import torch
from torch.utils.cpp_extension import load_inline

load_inline(name="../../up", cpp_sources="int one() { return 1; }", functions=["one"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
