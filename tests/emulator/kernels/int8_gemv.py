"""A quantised matrix times a vector: four 8-bit products an instruction, scaled back to float."""

import torch

CPP = "torch::Tensor int8_gemv(torch::Tensor weight, torch::Tensor x, torch::Tensor scale);"
CUDA = r"""
#include <torch/extension.h>
#include <cstdint>

__global__ void gemv_kernel(const int8_t* __restrict__ weight, const int8_t* __restrict__ x, const float* __restrict__ scale, float* __restrict__ y, int K) {
    const int row = blockIdx.x;
    const int4* w = reinterpret_cast<const int4*>(weight + (size_t)row * K);
    const int4* v = reinterpret_cast<const int4*>(x);
    int acc = 0;
    for (int i = threadIdx.x; i < K / 16; i += blockDim.x) {
        const int4 a = __ldcs(&w[i]), b = v[i];
        acc = __dp4a(a.x, b.x, acc);
        acc = __dp4a(a.y, b.y, acc);
        acc = __dp4a(a.z, b.z, acc);
        acc = __dp4a(a.w, b.w, acc);
    }
    acc = __reduce_add_sync(0xffffffffu, acc);
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) atomicAdd(&total, acc);
    __syncthreads();
    if (threadIdx.x == 0) y[row] = __int2float_rn(total) * scale[row];
}

torch::Tensor int8_gemv(torch::Tensor weight, torch::Tensor x, torch::Tensor scale) {
    TORCH_CHECK(weight.size(1) % 16 == 0, "K must be a multiple of 16");
    auto y = torch::empty({weight.size(0)}, scale.options());
    gemv_kernel<<<weight.size(0), 64>>>(weight.data_ptr<int8_t>(), x.data_ptr<int8_t>(), scale.data_ptr<float>(), y.data_ptr<float>(), weight.size(1));
    return y;
}
"""


def cases():
    return [
        (
            torch.randint(-128, 128, (m, k), dtype=torch.int8),
            torch.randint(-128, 128, (k,), dtype=torch.int8),
            torch.rand(m),
        )
        for m, k in [(1, 16), (5, 1040)]
    ]


def answer(weight, x, scale):
    return (weight.int() @ x.int()).float() * scale
