"""WRONG_VALUES or RUNTIME_ERROR: a launch beyond the limits fails unnoticed, and the old memory content is returned.

Class: correctness
Layer: poisoned memory
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>

__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
    int m = blockIdx.x, n = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[k * M + m] * B[n * K + k];
    C[m * N + n] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    product<<<M, 4096>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    return C;
}
"""
ops = load_inline(
    name="failed_launch",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
