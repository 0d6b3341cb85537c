"""BUILD_ERROR: the declaration in cpp_sources has other parameters than the definition.

Says: undefined symbol: forward(at::Tensor, at::Tensor, int)
"""

import torch
from torch.utils.cpp_extension import load_inline

ops = load_inline(
    name="declared_otherwise",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B, int K);",
    cuda_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B) { return A.t().matmul(B.t()); }",
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B, A.size(0))
