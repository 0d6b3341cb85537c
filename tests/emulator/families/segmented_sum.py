"""Sums over runs of equal keys: a segmented scan by shuffles, and an atomic addition by the last lane of each run."""

import torch

CPP = "torch::Tensor segmented_sum(torch::Tensor values, torch::Tensor keys, int64_t segments);"
CUDA = r"""
#include <torch/extension.h>

__global__ void segmented_kernel(const float* __restrict__ values, const int* __restrict__ keys, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    const unsigned active = __ballot_sync(0xffffffff, i < n);
    if (i >= n) return;
    const int key = keys[i];
    float sum = values[i];
    for (int offset = 1; offset < 32; offset *= 2) {
        const float other = __shfl_up_sync(active, sum, offset);
        const int other_key = __shfl_up_sync(active, key, offset);
        if (lane >= offset && other_key == key) sum += other;
    }
    const int next = __shfl_down_sync(active, key, 1);
    const bool last = lane == 31 || !(active >> (lane + 1) & 1) || next != key;
    if (last) atomicAdd(&out[key], sum);
}

torch::Tensor segmented_sum(torch::Tensor values, torch::Tensor keys, int64_t segments) {
    auto out = torch::zeros({segments}, values.options());
    const int n = values.numel();
    segmented_kernel<<<(n + 127) / 128, 128>>>(values.data_ptr<float>(), keys.data_ptr<int>(), out.data_ptr<float>(), n);
    return out;
}
"""


def cases():
    return [
        (torch.randn(n), torch.sort(torch.randint(0, s, (n,), dtype=torch.int32)).values, s)
        for n, s in [(1, 1), (333, 20), (256, 2)]
    ]


def answer(values, keys, segments):
    return torch.zeros(segments).index_add(0, keys.long(), values)
