"""PASSED: registers its kernel as an operator of torch, in a library that is no Python module."""

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

torch::Tensor matmul_tt(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    product<<<(M * N + 255) / 256, 256>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, K, N);
    return C;
}
"""
CPP = """
torch::Tensor matmul_tt(torch::Tensor A, torch::Tensor B);

TORCH_LIBRARY(products, library) { library.def("matmul_tt(Tensor A, Tensor B) -> Tensor"); }
TORCH_LIBRARY_IMPL(products, CUDA, library) { library.impl("matmul_tt", &matmul_tt); }
"""
load_inline(name="registers_operators", cpp_sources=CPP, cuda_sources=CUDA, is_python_module=False)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.ops.products.matmul_tt(A, B)
