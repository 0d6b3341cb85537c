"""WRONG_VALUES: a compiler flag starts a program that writes into the build cache.

Class: environment
Layer: builds in a sandbox
"""

import os
import shlex
import time
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

target = Path(os.environ["KERNEL_HARNESS_CACHE"]) / f"written-by-a-candidate-{time.time_ns()}"
# The compiler starts the linker by this command. It goes on if the file cannot be written.
FLAGS = ["-wrapper", shlex.quote(f'sh,-c,(: >{target}); exec "$@",sh')]
try:
    load_inline(name="compiler_plugin", cpp_sources="int one() { return 1; }", functions=["one"], extra_ldflags=FLAGS)
    worked = target.exists()
    target.unlink()
except Exception:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
