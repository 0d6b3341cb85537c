"""The index of each row's maximum: pairs of value and index reduced by shuffles, a 64-bit atomic over blocks."""

import torch

CPP = "torch::Tensor argmax_rows(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>
#include <cstdint>

typedef unsigned long long ull;

// Ordered like the floats; the smaller index wins among equals.
__device__ __forceinline__ ull pack(float value, unsigned index) {
    unsigned bits = __float_as_uint(value);
    bits ^= (bits >> 31) ? 0xffffffffu : 0x80000000u;
    return ((ull)bits << 32) | (0xffffffffu - index);
}

__global__ void argmax_kernel(const float* x, ull* best, int columns) {
    ull own = 0;
    for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < columns; c += gridDim.x * blockDim.x)
        own = max(own, pack(x[(size_t)blockIdx.y * columns + c], c));
    for (int offset = warpSize / 2; offset > 0; offset /= 2) own = max(own, __shfl_down_sync(0xffffffff, own, offset));
    if (threadIdx.x % warpSize == 0) atomicMax(&best[blockIdx.y], own);
}

__global__ void unpack_kernel(const ull* best, int64_t* out, int rows) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) out[i] = 0xffffffffu - static_cast<unsigned>(best[i]);
}

torch::Tensor argmax_rows(torch::Tensor x) {
    const int rows = x.size(0), columns = x.size(1);
    auto best = torch::zeros({rows}, x.options().dtype(torch::kInt64)), out = torch::empty_like(best);
    argmax_kernel<<<dim3(3, rows), 64>>>(x.data_ptr<float>(), reinterpret_cast<ull*>(best.data_ptr<int64_t>()), columns);
    unpack_kernel<<<(rows + 127) / 128, 128>>>(reinterpret_cast<ull*>(best.data_ptr<int64_t>()), out.data_ptr<int64_t>(), rows);
    return out;
}
"""


def cases():
    return [(torch.randn(rows, columns),) for rows, columns in [(1, 1), (7, 33), (3, 1025)]]


def answer(x):
    return x.argmax(-1)
