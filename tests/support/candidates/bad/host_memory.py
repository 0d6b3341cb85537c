"""RUNTIME_ERROR: inputs left on the CPU, whose addresses no kernel can read.

Says: illegal memory access
Says: argument 1 of product is host memory
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <c10/cuda/CUDAException.h>

__global__ void product(const float* A, const float* B, float* C, int M, int K, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[k * M + i / N] * B[i % N * K + k];
    C[i] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    product<<<(M * N + 255) / 256, 256>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, K, N);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return C;
}
"""

ops = load_inline(
    name="host_memory",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A.cpu(), B.cpu())
