"""BUILD_ERROR: an ABI flag copied from an old wheel, under which torch's own functions have other names.

Says: undefined symbol
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    TORCH_CHECK(A.size(0) == B.size(1), "A and B must share K, got ", A.size(0), " and ", B.size(1));
    return A.t().matmul(B.t());
}
"""

ops = load_inline(
    name="old_abi",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
    extra_cflags=["-D_GLIBCXX_USE_CXX11_ABI=0"],
    extra_cuda_cflags=["-D_GLIBCXX_USE_CXX11_ABI=0"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
