"""A matrix-vector product with 4-bit weights: eight weights in a word, and a scale and a zero point per group."""

import torch

CPP = "torch::Tensor int4_gemv(torch::Tensor x, torch::Tensor packed, torch::Tensor scales, torch::Tensor zeros);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cstdint>

constexpr int kGroup = 64;

// One warp computes one output row. A lane reads four words, which are 32 weights, at once.
__global__ void __launch_bounds__(128) gemv_kernel(const __half* __restrict__ x, const uint4* __restrict__ packed,
                                                   const __half* __restrict__ scales, const uint8_t* __restrict__ zeros,
                                                   __half* __restrict__ y, int rows, int columns) {
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= rows) return;
    const int steps = columns / 32, groups = columns / kGroup;
    float sum = 0.f;
    for (int step = lane; step < steps; step += 32) {
        const uint4 four = __ldg(&packed[static_cast<size_t>(row) * steps + step]);
        const uint32_t words[4] = {four.x, four.y, four.z, four.w};
        const int group = row * groups + step * 32 / kGroup;
        const float scale = __half2float(scales[group]);
        const int zero = zeros[group];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const uint4 eight = *reinterpret_cast<const uint4*>(&x[step * 32 + w * 8]);
            const __half2* pairs = reinterpret_cast<const __half2*>(&eight);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 in = __half22float2(pairs[j]);
                const int low = words[w] >> (8 * j) & 15, high = words[w] >> (8 * j + 4) & 15;
                sum = fmaf(in.x, scale * (low - zero), sum);
                sum = fmaf(in.y, scale * (high - zero), sum);
            }
        }
    }
    for (int offset = 16; offset; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (!lane) y[row] = __float2half(sum);
}

torch::Tensor int4_gemv(torch::Tensor x, torch::Tensor packed, torch::Tensor scales, torch::Tensor zeros) {
    const int rows = packed.size(0), columns = x.numel();
    TORCH_CHECK(columns % kGroup == 0 && packed.size(1) * 8 == columns);
    auto y = torch::empty({rows}, x.options());
    gemv_kernel<<<(rows + 3) / 4, 128>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
                                         reinterpret_cast<const uint4*>(packed.data_ptr<int>()),
                                         reinterpret_cast<const __half*>(scales.data_ptr<at::Half>()), zeros.data_ptr<uint8_t>(),
                                         reinterpret_cast<__half*>(y.data_ptr<at::Half>()), rows, columns);
    return y;
}
"""
TOLERANCE = {"rtol": 5e-3, "atol": 5e-3}


def cases():
    return [
        (
            torch.randn(k).half(),
            torch.randint(-(2**31), 2**31 - 1, (n, k // 8), dtype=torch.int32),
            (torch.rand(n, k // 64) * 0.05).half(),
            torch.randint(0, 16, (n, k // 64), dtype=torch.uint8),
        )
        for n, k in [(1, 64), (9, 1088)]
    ]


def answer(x, packed, scales, zeros):
    words = packed.long() & 0xFFFFFFFF
    weights = torch.stack([words >> (4 * i) & 15 for i in range(8)], -1).flatten(1).float()
    weights = weights - zeros.float().repeat_interleave(64, 1)
    return (weights * scales.float().repeat_interleave(64, 1) @ x.float()).half()
