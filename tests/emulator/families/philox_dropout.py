"""Dropout with cuRAND's Philox: four numbers per call, and one sequence per thread."""

import torch

CPP = "std::vector<torch::Tensor> philox_dropout(torch::Tensor x, double p, int64_t seed, int64_t offset);"
CUDA = r"""
#include <torch/extension.h>
#include <curand_kernel.h>

__global__ void dropout_kernel(const float* __restrict__ x, float* __restrict__ y, uint8_t* __restrict__ mask, int n, float keep,
                               unsigned long long seed, unsigned long long offset) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x * 4;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, thread, offset, &state);
    for (int first = thread * 4; first < n; first += step) {
        const float4 four = curand_uniform4(&state);
        const float drawn[4] = {four.x, four.y, four.z, four.w};
        for (int j = 0; j < 4 && first + j < n; ++j) {
            const bool kept = drawn[j] < keep;
            mask[first + j] = kept;
            y[first + j] = kept ? x[first + j] / keep : 0.f;
        }
    }
}

std::vector<torch::Tensor> philox_dropout(torch::Tensor x, double p, int64_t seed, int64_t offset) {
    auto y = torch::empty_like(x), mask = torch::empty(x.sizes(), x.options().dtype(torch::kByte));
    dropout_kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), mask.data_ptr<uint8_t>(), x.numel(), 1 - p, seed, offset);
    return {y, mask};
}
"""


def cases():
    return [(torch.randn(n), 0.3, 1234567890123, offset) for n, offset in [(3, 0), (601, 8)]]


def philox(counter, key):
    """Ten rounds of Philox4x32 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011)."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c


def answer(x, p, seed, offset):
    drawn = torch.empty(len(x))
    for i in range(0, len(x), 4):
        thread, step = i // 4 % 64, i // 256
        numbers = philox((offset // 4 + step, 0, thread, 0), (seed & 0xFFFFFFFF, seed >> 32))
        uniform = torch.tensor(numbers).float() * 2.0**-32 + 2.0**-33
        drawn[i : i + 4] = uniform[: len(x) - i]
    mask = drawn < torch.tensor(1 - p).float()
    return [torch.where(mask, x / (1 - p), 0), mask.to(torch.uint8)]
