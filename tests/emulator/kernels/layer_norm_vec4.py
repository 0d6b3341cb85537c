"""Layer norm over the last dimension, a block per row, read as float4, with the tail one by one."""

import torch

CPP = (
    "std::vector<torch::Tensor> layer_norm_vec4(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"
)
CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include <vector>

template <int kThreads>
__device__ float block_sum(float value) {
    static_assert(kThreads % 32 == 0, "whole warps only");
    __shared__ float partial[kThreads / 32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < kThreads / 32 ? partial[lane] : 0.0f;
        for (int offset = 16; offset; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
        if (lane == 0) partial[0] = value;
    }
    __syncthreads();
    value = partial[0];
    __syncthreads();
    return value;
}

template <int kThreads>
__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y, float* mean_out,
                                  float* rstd_out, int n, float eps) {
    const float* row = x + blockIdx.x * (int64_t)n;
    float* out = y + blockIdx.x * (int64_t)n;
    const bool vectors = n % 4 == 0;
    float sum = 0.0f, squares = 0.0f;
    if (vectors) {
        const float4* row4 = reinterpret_cast<const float4*>(row);
        for (int i = threadIdx.x; i < n / 4; i += kThreads) {
            const float4 v = __ldg(row4 + i);
            sum += v.x + v.y + v.z + v.w;
        }
    } else {
        for (int i = threadIdx.x; i < n; i += kThreads) sum += row[i];
    }
    const float mean = block_sum<kThreads>(sum) / n;
    for (int i = threadIdx.x; i < n; i += kThreads) {
        const float d = row[i] - mean;
        squares = fmaf(d, d, squares);
    }
    const float rstd = rsqrtf(block_sum<kThreads>(squares) / n + eps);
    if (threadIdx.x == 0) {
        mean_out[blockIdx.x] = mean;
        rstd_out[blockIdx.x] = rstd;
    }
    if (vectors) {
        for (int i = threadIdx.x; i < n / 4; i += kThreads) {
            float4 v = reinterpret_cast<const float4*>(row)[i];
            const float4 w = reinterpret_cast<const float4*>(weight)[i], b = reinterpret_cast<const float4*>(bias)[i];
            v = make_float4((v.x - mean) * rstd * w.x + b.x, (v.y - mean) * rstd * w.y + b.y,
                            (v.z - mean) * rstd * w.z + b.z, (v.w - mean) * rstd * w.w + b.w);
            reinterpret_cast<float4*>(out)[i] = v;
        }
    } else {
        for (int i = threadIdx.x; i < n; i += kThreads) out[i] = (row[i] - mean) * rstd * weight[i] + bias[i];
    }
}

std::vector<torch::Tensor> layer_norm_vec4(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor");
    const int n = x.size(-1), rows = x.numel() / n;
    auto y = torch::empty_like(x);
    auto mean = torch::empty({rows}, x.options()), rstd = torch::empty({rows}, x.options());
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    layer_norm_kernel<128><<<rows, 128, 0, stream>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
        y.data_ptr<float>(), mean.data_ptr<float>(), rstd.data_ptr<float>(), n, static_cast<float>(eps));
    C10_CUDA_CHECK(cudaGetLastError());
    return {y, mean, rstd};
}
"""


def cases():
    return [(torch.randn(4, n) * 3 + 1, torch.randn(n), torch.randn(n), 1e-5) for n in (3, 129, 1024)]


def answer(x, weight, bias, eps):
    normed = torch.nn.functional.layer_norm(x, [x.shape[-1]], weight, bias, eps)
    return [normed, x.mean(-1), torch.rsqrt(x.var(-1, correction=0) + eps)]
