"""LOAD_ERROR: a keyword that load_inline does not have.

Says: unknown_keyword.py:10: TypeError:
Says: did you mean 'extra_cuda_cflags'?
"""

import torch
from torch.utils.cpp_extension import load_inline

ops = load_inline(
    name="unknown_keyword",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B) { return A.t().matmul(B.t()); }",
    functions=["forward"],
    extra_cuda_flags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
