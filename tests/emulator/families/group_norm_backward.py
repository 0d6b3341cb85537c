"""The backward pass of group norm: sums per group in shared memory, and sums per channel by atomics."""

import torch

CPP = "std::vector<at::Tensor> group_norm_backward(at::Tensor dy, at::Tensor x, at::Tensor weight, int64_t groups);"
CUDA = r"""
#include <torch/extension.h>

__device__ float2 block_sum(float2 value, float2* shared) {
    for (int offset = 16; offset; offset /= 2) {
        value.x += __shfl_xor_sync(~0u, value.x, offset);
        value.y += __shfl_xor_sync(~0u, value.y, offset);
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    float2 out = make_float2(0.f, 0.f);
    for (int w = 0; w < blockDim.x / 32; ++w) out.x += shared[w].x, out.y += shared[w].y;
    __syncthreads();
    return out;
}

__global__ void backward_kernel(const float* __restrict__ dy, const float* __restrict__ x, const float* __restrict__ weight,
                                float* __restrict__ dx, float* dweight, float* dbias, int channels, int per_group, int pixels) {
    extern __shared__ float2 shared[];
    const int sample = blockIdx.y, channel0 = blockIdx.x * per_group, n = per_group * pixels;
    const size_t base = (static_cast<size_t>(sample) * channels + channel0) * pixels;
    float2 moments = make_float2(0.f, 0.f);
    for (int i = threadIdx.x; i < n; i += blockDim.x) moments.x += x[base + i], moments.y += x[base + i] * x[base + i];
    moments = block_sum(moments, shared);
    const float mean = moments.x / n, rstd = rsqrtf(moments.y / n - mean * mean + 1e-5f);
    float2 sums = make_float2(0.f, 0.f);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float g = dy[base + i] * weight[channel0 + i / pixels], normed = (x[base + i] - mean) * rstd;
        sums.x += g;
        sums.y += g * normed;
    }
    sums = block_sum(sums, shared);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float g = dy[base + i] * weight[channel0 + i / pixels], normed = (x[base + i] - mean) * rstd;
        dx[base + i] = rstd * (g - sums.x / n - normed * sums.y / n);
    }
    for (int c = threadIdx.x / 32; c < per_group; c += blockDim.x / 32) {
        float2 own = make_float2(0.f, 0.f);
        for (int p = threadIdx.x % 32; p < pixels; p += 32) {
            const float g = dy[base + c * pixels + p];
            own.x += g * (x[base + c * pixels + p] - mean) * rstd;
            own.y += g;
        }
        for (int offset = 16; offset; offset /= 2) {
            own.x += __shfl_down_sync(~0u, own.x, offset);
            own.y += __shfl_down_sync(~0u, own.y, offset);
        }
        if (threadIdx.x % 32 == 0) {
            atomicAdd(&dweight[channel0 + c], own.x);
            atomicAdd(&dbias[channel0 + c], own.y);
        }
    }
}

std::vector<at::Tensor> group_norm_backward(at::Tensor dy, at::Tensor x, at::Tensor weight, int64_t groups) {
    const int batch = x.size(0), channels = x.size(1), pixels = x.numel() / batch / channels, threads = 96;
    auto dx = at::empty_like(x), dweight = at::zeros_like(weight), dbias = at::zeros_like(weight);
    backward_kernel<<<dim3(groups, batch), threads, threads / 32 * sizeof(float2)>>>(
        dy.data_ptr<float>(), x.data_ptr<float>(), weight.data_ptr<float>(), dx.data_ptr<float>(), dweight.data_ptr<float>(),
        dbias.data_ptr<float>(), channels, channels / groups, pixels);
    return {dx, dweight, dbias};
}
"""


def cases():
    return [(torch.randn(2, 6, 5, 7), torch.randn(2, 6, 5, 7), torch.randn(6), 2)]


def answer(dy, x, weight, groups):
    x, weight, bias = (t.clone().requires_grad_() for t in (x, weight, torch.zeros_like(weight)))
    torch.nn.functional.group_norm(x, groups, weight, bias).backward(dy)
    return [x.grad, weight.grad, bias.grad]
