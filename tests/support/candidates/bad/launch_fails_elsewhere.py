"""RUNTIME_ERROR: at another shape than the timed one its launch fails, which is no refusal.

Says: launch failed
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <cuda_runtime.h>

__global__ void product(const float* A, const float* B, float* C, int M, int K, int N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[k * M + blockIdx.x] * B[threadIdx.x * K + k];
    C[blockIdx.x * N + threadIdx.x] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    // A block has as many threads as it should only where N is the timed one.
    int threads = N == 48 ? N : 4096;
    product<<<M, threads>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, K, N);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch failed");
    return C;
}
"""

ops = load_inline(
    name="launch_fails_elsewhere",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
