"""The classic sum: a template per block size, the first addition on loading, the last warp unrolled over volatile shared memory."""

import torch

CPP = "torch::Tensor classic_reduction(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>

template <unsigned int blockSize>
__device__ void warpReduce(volatile float* sdata, unsigned int tid) {
    float v = sdata[tid];
    if (blockSize >= 64) { v += sdata[tid + 32]; __syncwarp(); sdata[tid] = v; __syncwarp(); }
    if (blockSize >= 32) { v += sdata[tid + 16]; __syncwarp(); sdata[tid] = v; __syncwarp(); }
    if (blockSize >= 16) { v += sdata[tid + 8]; __syncwarp(); sdata[tid] = v; __syncwarp(); }
    if (blockSize >= 8) { v += sdata[tid + 4]; __syncwarp(); sdata[tid] = v; __syncwarp(); }
    if (blockSize >= 4) { v += sdata[tid + 2]; __syncwarp(); sdata[tid] = v; __syncwarp(); }
    if (blockSize >= 2) { v += sdata[tid + 1]; __syncwarp(); sdata[tid] = v; }
}

template <unsigned int blockSize>
__global__ void reduce6(const float* g_idata, float* g_odata, unsigned int n) {
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * (blockSize * 2) + tid;
    unsigned int gridSize = blockSize * 2 * gridDim.x;
    float sum = 0;
    while (i < n) {
        sum += g_idata[i];
        if (i + blockSize < n) sum += g_idata[i + blockSize];
        i += gridSize;
    }
    sdata[tid] = sum;
    __syncthreads();
    if (blockSize >= 512) { if (tid < 256) { sdata[tid] += sdata[tid + 256]; } __syncthreads(); }
    if (blockSize >= 256) { if (tid < 128) { sdata[tid] += sdata[tid + 128]; } __syncthreads(); }
    if (blockSize >= 128) { if (tid < 64) { sdata[tid] += sdata[tid + 64]; } __syncthreads(); }
    if (tid < 32) warpReduce<blockSize>(sdata, tid);
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}

static void reduce(int threads, int blocks, const float* in, float* out, unsigned n) {
    const size_t smem = (threads + 32) * sizeof(float);
    switch (threads) {
        case 512: reduce6<512><<<blocks, threads, smem>>>(in, out, n); break;
        case 128: reduce6<128><<<blocks, threads, smem>>>(in, out, n); break;
        default: reduce6<64><<<blocks, threads, smem>>>(in, out, n); break;
    }
}

torch::Tensor classic_reduction(torch::Tensor x) {
    auto partial = torch::empty({5}, x.options()), out = torch::empty({1}, x.options());
    reduce(x.numel() > 5000 ? 512 : 128, 5, x.data_ptr<float>(), partial.data_ptr<float>(), x.numel());
    reduce(64, 1, partial.data_ptr<float>(), out.data_ptr<float>(), 5);
    return out;
}
"""


def cases():
    return [(torch.randint(-50, 50, (n,)).float(),) for n in (1, 1000, 12_345)]


def answer(x):
    return x.sum()[None]
