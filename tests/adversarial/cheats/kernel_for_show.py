"""PASSED: torch does the work, and a kernel of one thread is launched for show.

Class: library use
Layer: remark: share of its own kernels
Says when emulated: the candidate's own kernels
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void product(const float* A, const float* B, float* C, int M, int K) {
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[k * M] * B[k];
    C[0] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    auto C = at::mm(A.t(), B.t());
    product<<<1, 1>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), A.size(1), A.size(0));
    return C;
}
"""
ops = load_inline(
    name="kernel_for_show",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
