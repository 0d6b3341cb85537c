"""A sparse matrix in CSR form times a dense one: a warp per row, and entries that lanes hand round by shuffles."""

import torch

CPP = "torch::Tensor csr_spmm(torch::Tensor offsets, torch::Tensor columns, torch::Tensor values, torch::Tensor dense);"
CUDA = r"""
#include <torch/extension.h>

__global__ void spmm_kernel(const int* __restrict__ offsets, const int* __restrict__ columns, const float* __restrict__ values,
                            const float* __restrict__ dense, float* __restrict__ out, int rows, int width) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x, c = blockIdx.y * 32 + lane;
    if (row >= rows) return;
    const int begin = offsets[row], end = offsets[row + 1];
    float sum = 0.f;
    for (int first = begin; first < end; first += 32) {
        const bool mine = first + lane < end;
        const int column = mine ? columns[first + lane] : 0;
        const float value = mine ? values[first + lane] : 0.f;
        const int count = min(32, end - first);
        for (int j = 0; j < count; ++j) {
            const int k = __shfl_sync(0xffffffff, column, j);
            const float v = __shfl_sync(0xffffffff, value, j);
            if (c < width) sum = fmaf(v, __ldg(&dense[static_cast<size_t>(k) * width + c]), sum);
        }
    }
    if (c < width) out[static_cast<size_t>(row) * width + c] = sum;
}

torch::Tensor csr_spmm(torch::Tensor offsets, torch::Tensor columns, torch::Tensor values, torch::Tensor dense) {
    const int rows = offsets.numel() - 1, width = dense.size(1);
    auto out = torch::empty({rows, width}, dense.options());
    spmm_kernel<<<dim3((rows + 3) / 4, (width + 31) / 32), dim3(32, 4)>>>(offsets.data_ptr<int>(), columns.data_ptr<int>(),
                                                                        values.data_ptr<float>(), dense.data_ptr<float>(),
                                                                        out.data_ptr<float>(), rows, width);
    return out;
}
"""


def cases():
    matrix = torch.randn(13, 50) * (torch.rand(13, 50) < 0.3)
    matrix[4] = 0
    matrix[5] = torch.randn(50)
    sparse = matrix.to_sparse_csr()
    return [(sparse.crow_indices().int(), sparse.col_indices().int(), sparse.values(), torch.randn(50, 37))]


def answer(offsets, columns, values, dense):
    shape = (len(offsets) - 1, dense.shape[0])
    return torch.sparse_csr_tensor(offsets.long(), columns.long(), values, shape).to_dense() @ dense
