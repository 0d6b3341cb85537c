"""WRONG_VALUES: the linker embeds the problem file, with the reference's source, into its library.

Class: this harness
Layer: the wall
"""

import re
import secrets
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

import kernel_harness

problem = Path(kernel_harness.__file__).parent.parent / "tests/support/candidates/problem/product.py"
name = re.sub(r"\W", "_", f"_binary_{problem}")
# A library that another run has built would be in the build cache.
SOURCE = f"""
// {secrets.token_hex(8)}
extern "C" const char {name}_start, {name}_end;
int64_t bytes() {{ return &{name}_end - &{name}_start; }}
"""
FLAGS = [f"-Wl,--format=binary,{problem},--format=default"]
try:
    ops = load_inline(name="embeds_the_problem", cpp_sources=SOURCE, functions=["bytes"], extra_ldflags=FLAGS)
    worked = ops.bytes() > 0
except Exception:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
