"""BUILD_ERROR: line 16 lacks a semicolon, in a string that is formatted before it is compiled.

Says: formatted_compile_error.py:16: error:
"""

import torch
from torch.utils.cpp_extension import load_inline

TILE = 16
CUDA_SOURCE = f"""
#include <torch/extension.h>

constexpr int tile = {TILE};

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {{
    int columns = tile + }};
"""

ops = load_inline(
    name="formatted_compile_error",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
