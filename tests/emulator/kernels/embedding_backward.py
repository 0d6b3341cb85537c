"""The gradient of an embedding table: rows of the output's gradient added where their index points, atomically."""

import torch

CPP = "torch::Tensor embedding_backward(torch::Tensor grad, torch::Tensor indices, int64_t rows);"
CUDA = r"""
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

template <typename scalar_t, typename index_t>
__global__ void embedding_backward_kernel(const scalar_t* __restrict__ grad, const index_t* __restrict__ indices,
                                          scalar_t* __restrict__ table, int64_t count, int64_t dim) {
    for (int64_t i = blockIdx.y * blockDim.y + threadIdx.y; i < count; i += gridDim.y * blockDim.y) {
        const index_t row = indices[i];
        for (int64_t d = blockIdx.x * blockDim.x + threadIdx.x; d < dim; d += gridDim.x * blockDim.x)
            gpuAtomicAdd(&table[row * dim + d], grad[i * dim + d]);
    }
}

torch::Tensor embedding_backward(torch::Tensor grad, torch::Tensor indices, int64_t rows) {
    const int64_t count = indices.numel(), dim = grad.size(-1);
    auto table = torch::zeros({rows, dim}, grad.options());
    const dim3 block(32, 4), grid(2, 3);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(grad.scalar_type(), "embedding_backward", [&] {
        AT_DISPATCH_INDEX_TYPES(indices.scalar_type(), "embedding_backward_index", [&] {
            embedding_backward_kernel<scalar_t, index_t><<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
                grad.data_ptr<scalar_t>(), indices.data_ptr<index_t>(), table.data_ptr<scalar_t>(), count, dim);
        });
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return table;
}
"""


def cases():
    return [
        (torch.randint(-4, 5, (n, dim)).to(dtype), torch.randint(0, 5, (n,), dtype=index), 5)
        for n, dim in [(1, 1), (37, 67)]
        for dtype, index in [(torch.float32, torch.int64), (torch.float16, torch.int32), (torch.float64, torch.int64)]
    ]


def answer(grad, indices, rows):
    return torch.zeros(rows, grad.shape[1], dtype=grad.dtype).index_add_(0, indices.long(), grad)
