"""BUILD_ERROR: asks the judge to store a library under a name outside the cache.

Class: this harness
Layer: builds filed by the judge
"""

import torch
from torch.utils.cpp_extension import load_inline

load_inline(name="../../escaped", cpp_sources="int one() { return 1; }", functions=["one"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
