"""MUTATED_INPUT: a kernel writes one element past the end of its second input.

Says: Memory just beside input 2 was written to
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
__global__ void clear(float* B, int size) {
    if (threadIdx.x == size) B[size] = 0.0f;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int size = B.numel();
    clear<<<1, 1>>>(B.data_ptr<float>() + size, 0);
    return A.t().matmul(B.t());
}
"""

ops = load_inline(
    name="writes_beside_input",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
