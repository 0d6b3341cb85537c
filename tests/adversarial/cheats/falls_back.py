"""PASSED: the kernel fails, and torch does the work instead.

Class: library use
Layer: remark: no kernel of its own was launched
Says: no kernel of its own
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void nothing(float* C) { C[0] = 0; }

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    auto C = torch::empty({A.size(1), B.size(0)}, A.options());
    TORCH_CHECK(false, "no");
    return C;
}
"""
ops = load_inline(
    name="falls_back",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        try:
            return ops.forward(A, B)
        except RuntimeError:
            return torch.matmul(A.T, B.T)
