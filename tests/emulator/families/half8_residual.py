"""RMS norm of a sum of two half tensors, eight halves per load, which also returns the sum."""

import torch

CPP = "std::vector<torch::Tensor> half8_residual(torch::Tensor x, torch::Tensor residual, torch::Tensor weight);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>

union Half8 {
    int4 raw;
    __half2 pairs[4];
    __device__ Half8() {}
};

template <int THREADS>
__global__ __launch_bounds__(THREADS) void norm_kernel(const int4* __restrict__ x, const int4* __restrict__ residual,
                                                       const int4* __restrict__ weight, int4* __restrict__ y, int4* __restrict__ summed,
                                                       int vectors, float inverse) {
    __shared__ float parts[THREADS / 32];
    const size_t row = static_cast<size_t>(blockIdx.x) * vectors;
    float squares = 0.f;
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
        Half8 a, b;
        a.raw = x[row + i], b.raw = residual[row + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            a.pairs[j] = __hadd2(a.pairs[j], b.pairs[j]);
            const float2 f = __half22float2(a.pairs[j]);
            squares += f.x * f.x + f.y * f.y;
        }
        summed[row + i] = a.raw;
    }
    for (int mask = 16; mask; mask >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, mask);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.f;
    for (int w = 0; w < THREADS / 32; ++w) total += parts[w];
    const __half2 scale = __float2half2_rn(rsqrtf(total * inverse + 1e-6f));
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
        Half8 a, g;
        a.raw = summed[row + i], g.raw = __ldg(&weight[i]);
#pragma unroll
        for (int j = 0; j < 4; ++j) a.pairs[j] = __hmul2(__hmul2(a.pairs[j], scale), g.pairs[j]);
        y[row + i] = a.raw;
    }
}

std::vector<torch::Tensor> half8_residual(torch::Tensor x, torch::Tensor residual, torch::Tensor weight) {
    TORCH_CHECK(x.size(1) % 8 == 0);
    auto y = torch::empty_like(x), summed = torch::empty_like(x);
    auto eight = [](const torch::Tensor& t) { return reinterpret_cast<int4*>(t.data_ptr<at::Half>()); };
    norm_kernel<64><<<x.size(0), 64>>>(eight(x), eight(residual), eight(weight), eight(y), eight(summed), x.size(1) / 8, 1.f / x.size(1));
    return {y, summed};
}
"""
TOLERANCE = {"rtol": 4e-3, "atol": 2e-3}


def cases():
    return [(torch.randn(3, n).half(), torch.randn(3, n).half(), torch.randn(n).half()) for n in (8, 720)]


def answer(x, residual, weight):
    summed = x + residual
    scaled = summed.float() * torch.rsqrt(summed.float().pow(2).mean(1, keepdim=True) + 1e-6)
    return [(scaled * weight.float()).half(), summed]
