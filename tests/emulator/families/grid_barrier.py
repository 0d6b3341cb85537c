"""A barrier of the whole grid made of atomics, in a plain launch whose few blocks all run at once."""

import torch

CPP = "torch::Tensor grid_barrier(torch::Tensor x, int64_t rounds);"
CUDA = r"""
#include <torch/extension.h>

__device__ void wait_for_all(unsigned* arrived, unsigned round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x * (round + 1)) {
        }
        __threadfence();
    }
    __syncthreads();
}

__global__ void smooth_kernel(float* a, float* b, unsigned* arrived, int n, int rounds) {
    for (int r = 0; r < rounds; ++r) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            b[i] = 0.5f * (__ldcg(&a[i]) + __ldcg(&a[(i + 1) % n]));
        wait_for_all(arrived, r);
        float* swap = a;
        a = b;
        b = swap;
    }
}

torch::Tensor grid_barrier(torch::Tensor x, int64_t rounds) {
    auto a = x.clone(), b = torch::empty_like(x), arrived = torch::zeros({1}, x.options().dtype(torch::kInt));
    smooth_kernel<<<4, 32>>>(a.data_ptr<float>(), b.data_ptr<float>(), reinterpret_cast<unsigned*>(arrived.data_ptr<int>()), x.numel(), rounds);
    return rounds % 2 ? b : a;
}
"""


def cases():
    return [(torch.randn(n), rounds) for n, rounds in [(3, 1), (200, 6)]]


def answer(x, rounds):
    for _ in range(rounds):
        x = 0.5 * (x + x.roll(-1))
    return x
