"""Two warps hand tiles to each other through shared memory: volatile flags, fences, and no barrier."""

import torch

CPP = "torch::Tensor volatile_flags(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>

__global__ void pipeline_kernel(const float* __restrict__ x, float* __restrict__ out, int tiles) {
    __shared__ volatile float buffer[2][32];
    __shared__ volatile int filled[2];
    if (threadIdx.x < 2) filled[threadIdx.x] = 0;
    __syncthreads();
    const int lane = threadIdx.x % 32, base = blockIdx.x * tiles * 32;
    if (threadIdx.x < 32) {
        for (int t = 0; t < tiles; ++t) {
            while (filled[t & 1] != 0)
                ;
            buffer[t & 1][lane] = x[base + t * 32 + lane] * 2.f;
            __threadfence_block();
            __syncwarp();
            if (lane == 0) filled[t & 1] = 1;
        }
    } else {
        float before = 0.f;
        for (int t = 0; t < tiles; ++t) {
            while (true)
                if (filled[t & 1] == 1) break;
            __threadfence_block();
            before += buffer[t & 1][31 - lane];
            out[base + t * 32 + lane] = before;
            __threadfence_block();
            __syncwarp();
            if (lane == 0) filled[t & 1] = 0;
        }
    }
}

torch::Tensor volatile_flags(torch::Tensor x) {
    auto out = torch::empty_like(x);
    pipeline_kernel<<<x.size(0), 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""


def cases():
    return [(torch.randn(3, tiles, 32),) for tiles in (1, 5)]


def answer(x):
    return (2 * x.flip(2)).cumsum(1)
