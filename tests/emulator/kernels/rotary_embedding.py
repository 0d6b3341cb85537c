"""Rotary position embedding in place on queries and keys, two half-dimensions at a time as float2."""

import torch

CPP = "std::vector<torch::Tensor> rotary_embedding(torch::Tensor q, torch::Tensor k, double base);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__device__ inline float2 rotate(float2 v, float s, float c) { return make_float2(v.x * c - v.y * s, v.x * s + v.y * c); }

__global__ void rope(float* __restrict__ q, float* __restrict__ k, int heads, int kv_heads, int dim, float log2_base) {
    const int position = blockIdx.x, pairs = dim / 2;
    for (int i = threadIdx.x; i < (heads + kv_heads) * pairs; i += blockDim.x) {
        const int head = i / pairs, pair = i % pairs;
        const float inverse = exp2f(-log2_base * (2.0f * pair / dim));
        float s, c;
        sincosf(position * inverse, &s, &c);
        float* x = head < heads ? q + ((size_t)position * heads + head) * dim : k + ((size_t)position * kv_heads + head - heads) * dim;
        float2* pairs_of_x = reinterpret_cast<float2*>(x);
        pairs_of_x[pair] = rotate(pairs_of_x[pair], s, c);
    }
}

std::vector<torch::Tensor> rotary_embedding(torch::Tensor q, torch::Tensor k, double base) {
    auto q_out = q.clone(), k_out = k.clone();
    const int tokens = q.size(0);
    rope<<<tokens, 64>>>(q_out.data_ptr<float>(), k_out.data_ptr<float>(), q.size(1), k.size(1), q.size(2), log2(base));
    return {q_out, k_out};
}
"""


def cases():
    return [(torch.randn(n, heads, dim), torch.randn(n, 1, dim), 1e4) for n, heads, dim in [(1, 1, 2), (9, 3, 34)]]


def answer(q, k, base):
    def rotate(x):
        position = torch.arange(x.shape[0])[:, None, None]
        angle = position * base ** (-torch.arange(0, x.shape[2], 2) / x.shape[2])
        turned = torch.view_as_complex(x.reshape(*x.shape[:2], -1, 2)) * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).reshape(x.shape)

    return [rotate(q), rotate(k)]
