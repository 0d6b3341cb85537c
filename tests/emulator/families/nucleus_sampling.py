"""Sampling of a token from the smallest set of likely tokens: a threshold by bisection, then a walk over the sums."""

import torch

CPP = "torch::Tensor nucleus_sampling(torch::Tensor logits, torch::Tensor uniform, double top_p);"
CUDA = r"""
#include <torch/extension.h>
#include <cfloat>

template <typename T, typename Combine>
__device__ T all_reduce(T value, T* shared, Combine combine) {
    for (int offset = 16; offset; offset >>= 1) value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = value;
    __syncthreads();
    T out = shared[0];
    for (int w = 1; w < blockDim.x >> 5; ++w) out = combine(out, shared[w]);
    __syncthreads();
    return out;
}

__global__ void sample_kernel(const float* __restrict__ logits, const float* __restrict__ uniform, int64_t* __restrict__ out, int vocabulary, float top_p) {
    __shared__ float shared[32];
    extern __shared__ float weights[];
    const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
    auto add = [](float a, float b) { return a + b; };
    float peak = -FLT_MAX;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) peak = fmaxf(peak, row[i]);
    peak = all_reduce(peak, shared, [](float a, float b) { return fmaxf(a, b); });
    float total = 0.f;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) total += weights[i] = expf(row[i] - peak);
    total = all_reduce(total, shared, add);
    float low = 0.f, high = 1.f;
    for (int step = 0; step < 24; ++step) {
        const float middle = 0.5f * (low + high);
        float above = 0.f;
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) above += weights[i] >= middle ? weights[i] : 0.f;
        above = all_reduce(above, shared, add);
        if (above >= top_p * total) low = middle;
        else high = middle;
    }
    float kept = 0.f;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) kept += weights[i] >= low ? weights[i] : 0.f;
    kept = all_reduce(kept, shared, add);
    if (threadIdx.x == 0) {
        float left = uniform[blockIdx.x] * kept;
        int token = -1;
        for (int i = 0; i < vocabulary; ++i)
            if (weights[i] >= low) {
                token = i;
                left -= weights[i];
                if (left < 0.f) break;
            }
        out[blockIdx.x] = token;
    }
}

torch::Tensor nucleus_sampling(torch::Tensor logits, torch::Tensor uniform, double top_p) {
    const int rows = logits.size(0), vocabulary = logits.size(1);
    auto out = torch::empty({rows}, logits.options().dtype(torch::kLong));
    sample_kernel<<<rows, 64, vocabulary * sizeof(float)>>>(logits.data_ptr<float>(), uniform.data_ptr<float>(), out.data_ptr<int64_t>(), vocabulary, top_p);
    return out;
}
"""


def cases():
    return [(torch.randn(6, n) * 2, torch.rand(6), 0.8) for n in (1, 90)]


def answer(logits, uniform, top_p):
    p = torch.softmax(logits.double(), -1)
    ordered, order = p.sort(descending=True)
    kept = torch.zeros_like(p).scatter(1, order, torch.where(ordered.cumsum(1) - ordered < top_p, ordered, 0))
    below = kept.cumsum(1) <= (uniform.double() * kept.sum(1))[:, None]
    return below.sum(1)
