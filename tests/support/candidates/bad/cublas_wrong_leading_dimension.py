"""WRONG_VALUES: row-major matrices handed to cuBLAS with the row stride as leading dimension, its status unchecked.

Says: elements wrong
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    float one = 1.0f, zero = 0.0f;
    // To cuBLAS, A is K x M only with a leading dimension of at least K.
    cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_T, CUBLAS_OP_T, M, N, K, &one, A.data_ptr<float>(), M,
                B.data_ptr<float>(), K, &zero, C.data_ptr<float>(), N);
    return C;
}
"""

ops = load_inline(
    name="cublas_wrong_leading_dimension",
    cpp_sources="torch::Tensor forward(torch::Tensor A, torch::Tensor B);",
    cuda_sources=CUDA_SOURCE,
    functions=["forward"],
    extra_ldflags=["-lcublas"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A, B)
