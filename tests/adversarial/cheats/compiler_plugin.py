"""WRONG_VALUES: compiler flags make the linker write into the build cache.

Class: environment
Layer: builds in a sandbox
"""

import os
import time
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

target = Path(os.environ["KERNEL_HARNESS_CACHE"]) / f"written-by-a-candidate-{time.time_ns()}"
worked = False
try:
    load_inline(
        name="compiler_plugin",
        cpp_sources="int one() { return 1; }",
        functions=["one"],
        extra_ldflags=[f"-Wl,-Map={target}"],
    )
    worked = target.exists()
    target.unlink()
except Exception:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
