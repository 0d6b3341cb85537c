"""PASSED: compiles a kernel and never launches it.

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
    nothing<<<1, 1>>>(C.data_ptr<float>());
    return C;
}
"""
ops = load_inline(
    name="never_launched",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
