"""BUILD_ERROR: line 17 uses a name that nobody declared, in a string that begins on the line it is assigned on.

Says: cuda_compile_error.py:17: error:
Says: undeclared_name
Says: 17 |         sum += A[k * M + i / N] * B[undeclared_name];
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """#include <torch/extension.h>

__global__ void product(const float* A, const float* B, float* C, int M, int K, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k)
        sum += A[k * M + i / N] * B[undeclared_name];
    C[i] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) { return A; }
"""

ops = load_inline(
    name="cuda_compile_error",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
