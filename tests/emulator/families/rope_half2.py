"""Rotary embedding in place of interleaved pairs, one `half2` per pair, with the angles computed by `sincosf`."""

import torch

CPP = "torch::Tensor rope_half2(torch::Tensor x, torch::Tensor positions, double base);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void rope_kernel(__half2* x, const int64_t* __restrict__ positions, int heads, int pairs, float log_base) {
    const int token = blockIdx.x;
    const float position = static_cast<float>(positions[token]);
    for (int i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
        const int pair = i % pairs;
        float sine, cosine;
        sincosf(position * expf(-log_base * pair / pairs), &sine, &cosine);
        __half2& place = x[(static_cast<int64_t>(token) * heads * pairs) + i];
        const float a = __low2float(place), b = __high2float(place);
        place = __halves2half2(__float2half_rn(a * cosine - b * sine), __float2half_rn(a * sine + b * cosine));
    }
}

torch::Tensor rope_half2(torch::Tensor x, torch::Tensor positions, double base) {
    auto out = x.clone();
    const int tokens = x.size(0), heads = x.size(1), pairs = x.size(2) / 2;
    rope_kernel<<<tokens, 64>>>(reinterpret_cast<__half2*>(out.data_ptr<c10::Half>()), positions.data_ptr<int64_t>(), heads, pairs,
                                logf(static_cast<float>(base)));
    return out;
}
"""
TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}


def cases():
    return [(torch.randn(5, 3, 24).half(), torch.tensor([0, 1, 7, 40, 300]), 10000.0)]


def answer(x, positions, base):
    pairs = x.shape[2] // 2
    angles = positions[:, None].float() * base ** (-torch.arange(pairs) / pairs)
    a, b = x.float()[..., 0::2], x.float()[..., 1::2]
    sine, cosine = angles.sin()[:, None], angles.cos()[:, None]
    return torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(2).half()
