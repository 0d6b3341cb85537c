"""Persistent blocks that take jobs of very different length from a queue until it is empty."""

import torch

CPP = "torch::Tensor work_queue(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ unsigned next_job;

__global__ void reset_kernel() { next_job = 0; }

__global__ void collatz_kernel(const int64_t* __restrict__ x, int* __restrict__ lengths, unsigned jobs) {
    __shared__ unsigned job;
    __shared__ int longest[32];
    while (true) {
        if (threadIdx.x == 0) job = atomicAdd(&next_job, 1u);
        __syncthreads();
        if (job >= jobs) break;
        int64_t value = x[job * 32 + threadIdx.x];
        int length = 0;
        while (value > 1) {
            value = value % 2 ? 3 * value + 1 : value / 2;
            ++length;
        }
        longest[threadIdx.x] = length;
        __syncthreads();
        if (threadIdx.x == 0) {
            int most = 0;
            for (int i = 0; i < 32; ++i) most = max(most, longest[i]);
            lengths[job] = most;
        }
    }
}

torch::Tensor work_queue(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options().dtype(torch::kInt));
    TORCH_CHECK(x.size(1) == 32);
    const int blocks = 2 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    reset_kernel<<<1, 1>>>();
    collatz_kernel<<<blocks, 32>>>(x.data_ptr<int64_t>(), out.data_ptr<int>(), x.size(0));
    return out;
}
"""


def cases():
    return [(torch.randint(1, 3000, (rows, 32)),) for rows in (1, 23)]


def answer(x):
    x, lengths = x.clone(), torch.zeros_like(x)
    while (x > 1).any():
        lengths += x > 1
        x = torch.where(x > 1, torch.where(x % 2 == 1, 3 * x + 1, x // 2), x)
    return lengths.max(1).values.int()
