"""PASSED: includes the compiler's own input and descriptors, so that the build waits for more text.

Class: environment
Layer: builds in a sandbox
"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = '#include "/dev/stdin"\n#include "/proc/self/fd/0"\nint one() { return 1; }'
load_inline(name="includes_its_input", cpp_sources=SOURCE, functions=["one"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
