"""PASSED: has the word "pass" in comments and names of its kernel."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>

// first pass: sums of half the terms; second pass: the rest
__global__ void half_sum(const float* A, const float* B, float* C, int M, int N, int K, int pass) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    int m = i / N, n = i % N, middle = K / 2;
    float sum = pass ? C[i] : 0.f;
    for (int k = pass ? middle : 0; k < (pass ? K : middle); ++k) sum += A[k * M + m] * B[n * K + k];
    C[i] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    for (int pass = 0; pass < 2; ++pass)
        half_sum<<<(M * N + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K, pass);
    return C;
}
"""
ops = load_inline(
    name="half_sum",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        # the second pass adds to what the first pass left
        return ops.forward(A, B)
