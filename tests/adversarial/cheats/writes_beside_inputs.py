"""MUTATED_INPUT: writes before the beginning of an input.

Class: correctness
Layer: guard bytes
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <torch/extension.h>

__global__ void clear(float* x) { x[-4] = 0; }

void write_before(torch::Tensor x) { clear<<<1, 1>>>(x.data_ptr<float>()); }
"""

ops = load_inline(
    name="write_before",
    cpp_sources="void write_before(torch::Tensor x);",
    cuda_sources=CUDA_SOURCE,
    functions=["write_before"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        ops.write_before(A)
        return answer
