"""A transpose of a batch through a swizzled tile: columns are permuted by an exclusive or instead of padded."""

import torch

CPP = "torch::Tensor swizzled_transpose(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>
#include <cstdint>

__device__ __forceinline__ int place(int row, int column4) { return row * 8 + (column4 ^ (row & 7)); }

// A tile of 32 x 32 is moved as float4; the four rows of a group are turned in registers.
__global__ void __launch_bounds__(256) transpose_kernel(const float* __restrict__ in, float* __restrict__ out, int rows, int columns) {
    __shared__ float4 tile[32 * 8];
    const size_t base = static_cast<size_t>(blockIdx.z) * rows * columns;
    const int row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    const int r = threadIdx.x / 8, c4 = threadIdx.x % 8;
    float4 value = make_float4(0, 0, 0, 0);
    if (row0 + r < rows && column0 + c4 * 4 < columns)
        value = *reinterpret_cast<const float4*>(&in[base + static_cast<size_t>(row0 + r) * columns + column0 + c4 * 4]);
    tile[place(r, c4)] = value;
    __syncthreads();
    float gathered[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float4 from = tile[place(c4 * 4 + j, r / 4)];
        gathered[j] = reinterpret_cast<const float*>(&from)[r % 4];
    }
    if (column0 + r < columns && row0 + c4 * 4 < rows)
        *reinterpret_cast<float4*>(&out[base + static_cast<size_t>(column0 + r) * rows + row0 + c4 * 4]) =
            make_float4(gathered[0], gathered[1], gathered[2], gathered[3]);
}

torch::Tensor swizzled_transpose(torch::Tensor x) {
    const int batch = x.size(0), rows = x.size(1), columns = x.size(2);
    TORCH_CHECK(rows % 4 == 0 && columns % 4 == 0);
    auto out = torch::empty({batch, columns, rows}, x.options());
    transpose_kernel<<<dim3((columns + 31) / 32, (rows + 31) / 32, batch), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
    return out;
}
"""


def cases():
    return [(torch.randn(*shape),) for shape in [(1, 4, 4), (2, 36, 68)]]


def answer(x):
    return x.transpose(1, 2).contiguous()
