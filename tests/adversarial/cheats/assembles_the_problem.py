"""WRONG_VALUES: the assembler puts the problem file into its library.

Class: this harness
Layer: the wall
"""

import secrets
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

import kernel_harness

problem = Path(kernel_harness.__file__).parent.parent / "tests/support/candidates/problem/product.py"
SOURCE = f"""
// {secrets.token_hex(8)}
asm(".pushsection .rodata\\nstolen: .incbin \\"{problem}\\"\\nstolen_end: .byte 0\\n.popsection");
extern "C" const char stolen[], stolen_end[];
int64_t bytes() {{ return stolen_end - stolen; }}
"""
try:
    worked = load_inline(name="assembles", cpp_sources=SOURCE, functions=["bytes"]).bytes() > 0
except Exception:
    worked = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
