"""WRONG_VALUES: lets the compiler show the problem file: as a file of flags, and as the file of an error.

Class: this harness
Layer: the wall
"""

import secrets
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

import kernel_harness

problem = Path(kernel_harness.__file__).parent.parent / "tests/support/candidates/problem/product.py"
NEW = f"// {secrets.token_hex(8)}\n"  # a failure would be kept


def shown(source, flags):
    try:
        load_inline(name="shows", cpp_sources=NEW + source, functions=["one"], extra_cflags=flags)
    except Exception as error:
        return f"{error}{getattr(error, 'log', '')}"
    return ""


# Line 19 of the problem is in its `get_inputs`, and the words of its docstring are no flags.
texts = [
    shown(f'#line 19 "{problem}"\nint one() {{ return none; }}', []),
    shown("int one() { return 1; }", [f"@{problem}"]),
]
worked = any("torch.rand" in text or "transposed" in text for text in texts)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
