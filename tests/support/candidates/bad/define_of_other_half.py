"""BUILD_ERROR: the CUDA source relies on a #define of the C++ source, which is another compilation.

Says: define_of_other_half.py:19: error:
Says: CHECK_CUDA
"""

import torch
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <torch/extension.h>
#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")

torch::Tensor forward(torch::Tensor A, torch::Tensor B);
"""

CUDA_SOURCE = """
torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    CHECK_CUDA(A);
    return A.t().matmul(B.t());
}
"""

ops = load_inline(name="define_of_other_half", cpp_sources=CPP_SOURCE, cuda_sources=CUDA_SOURCE, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
