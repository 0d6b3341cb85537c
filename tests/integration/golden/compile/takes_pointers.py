"""The C++ function got the parameters of the kernel, and then has them as local variables, too."""

import torch
from torch.utils.cpp_extension import load_inline

source = """
__global__ void twice(const float* A, float* C, int M, int K) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < M * K) C[i] = 2 * A[i];
}
torch::Tensor forward(const float* A, float* C, int M, int K) {
    int K = A.size(0);
    twice<<<(M * K + 255) / 256, 256>>>(A, C, M, K);
    return C;
}
"""
extension = load_inline("twice", "torch::Tensor forward(torch::Tensor A);", source, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return extension.forward(A)
