"""WRONG_VALUES: compiler flags name a file that only a writable cache or checkout could hold.

Class: environment
Layer: builds in a sandbox
"""

import os

import torch
from torch.utils.cpp_extension import load_inline

# An assembler directive reads any file; the linker writes a map to any place.
target = os.path.join(os.environ["KERNEL_HARNESS_CACHE"], "written-by-a-candidate")
worked = False
try:
    load_inline(
        name="compiler_plugin",
        cpp_sources="int one() { return 1; }",
        functions=["one"],
        extra_ldflags=[f"-Wl,-Map={target}"],
    )
    worked = os.path.exists(target)
except Exception:
    pass


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
