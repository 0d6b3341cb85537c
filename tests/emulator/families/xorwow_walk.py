"""Random walks with cuRAND's default generator: states are kept in memory between two kernels."""

import torch

CPP = "std::vector<torch::Tensor> xorwow_walk(int64_t walkers, int64_t steps, int64_t seed);"
CUDA = r"""
#include <torch/extension.h>
#include <curand.h>
#include <curand_kernel.h>

__global__ void setup_kernel(curandState* states, int n, unsigned long long seed) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) curand_init(seed + i, 0, 0, &states[i]);
}

__global__ void walk_kernel(curandState* states, int* at, float* where, int n, int steps) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandState own = states[i];
    int place = 0;
    float moved = 0.f;
    for (int s = 0; s < steps; ++s) {
        place += curand(&own) & 1 ? 1 : -1;
        moved += curand_uniform(&own);
    }
    at[i] = place;
    where[i] = moved;
    states[i] = own;
}

std::vector<torch::Tensor> xorwow_walk(int64_t walkers, int64_t steps, int64_t seed) {
    curandState* states = nullptr;
    TORCH_CHECK(cudaMalloc(&states, walkers * sizeof(curandState)) == cudaSuccess);
    auto at = torch::empty({walkers}, torch::dtype(torch::kInt).device(torch::kCUDA));
    auto where = torch::empty({walkers}, torch::dtype(torch::kFloat).device(torch::kCUDA));
    const int blocks = (walkers + 31) / 32;
    setup_kernel<<<blocks, 32>>>(states, walkers, seed);
    for (int i = 0; i < 2; ++i) walk_kernel<<<blocks, 32>>>(states, at.data_ptr<int>(), where.data_ptr<float>(), walkers, steps);
    cudaFree(states);
    return {at, where};
}
"""


def cases():
    return [(5, 7, 42)]


def numbers(seed, count):
    """XORWOW (Marsaglia, Xorshift RNGs, 2003), seeded as cuRAND seeds it."""
    mask = 0xFFFFFFFF
    low, high = (seed & mask) ^ 0xAAD26B49, (seed >> 32) ^ 0xF7DCEFDD
    low, high = 1099087573 * low & mask, 2591861531 * high & mask
    v = [(123456789 + low) & mask, 362436069 ^ low, (521288629 + high) & mask, 88675123 ^ high, (5783321 + low) & mask]
    d = (6615241 + high + low) & mask
    out = []
    for _ in range(count):
        t = v[0] ^ v[0] >> 2
        v = [*v[1:], (v[4] ^ v[4] << 4 ^ t ^ t << 1) & mask]
        d = (d + 362437) & mask
        out.append((v[4] + d) & mask)
    return out


def answer(walkers, steps, seed):
    drawn = torch.tensor([numbers(seed + i, 4 * steps)[2 * steps :] for i in range(walkers)])
    at = (2 * (drawn[:, 0::2] & 1) - 1).sum(1).int()
    return [at, (drawn[:, 1::2].float() * 2.0**-32 + 2.0**-33).sum(1)]
