"""PASSED: launches its kernels until one of them reports that the sums are complete."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
constexpr int TERMS = 64;

__global__ void add_terms(const float* A, const float* B, float* C, const int* state, int M, int K, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    int first = state[0];
    float sum = first ? C[i] : 0;
    for (int k = first; k < min(first + TERMS, K); ++k) sum += A[k * M + i / N] * B[(i % N) * K + k];
    C[i] = sum;
}

__global__ void advance(int* state, int K) {
    state[0] += TERMS;
    state[1] = state[0] >= K;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    auto state = torch::zeros({2}, A.options().dtype(torch::kInt32));
    do {
        add_terms<<<(M * N + 255) / 256, 256>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(),
                                                state.data_ptr<int>(), M, K, N);
        advance<<<1, 1>>>(state.data_ptr<int>(), K);
    } while (!state[1].item<int>());
    return C;
}
"""
ops = load_inline(
    name="repeats_until_done",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
