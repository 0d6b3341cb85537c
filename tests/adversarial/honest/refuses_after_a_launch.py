"""PASSED: its second step refuses some shapes, after the first step has launched a kernel on them."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void product(const float* A, const float* B, float* C, int M, int K, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[k * M + i / N] * B[(i % N) * K + k];
    C[i] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    product<<<(M * N + 255) / 256, 256>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, K, N);
    TORCH_CHECK(K % 64 == 0, "K must be a multiple of 64");
    return C;
}
"""
ops = load_inline(
    name="refuses_after_a_launch",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
