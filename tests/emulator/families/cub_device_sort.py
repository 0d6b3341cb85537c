"""Ranks of experts' tokens: `cub::DeviceRadixSort` orders pairs, and `DeviceScan` gives the offset of each expert."""

import torch

CPP = "std::vector<torch::Tensor> cub_device_sort(torch::Tensor experts, torch::Tensor scores, int64_t count);"
CUDA = r"""
#include <torch/extension.h>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

__global__ void count_kernel(const int* experts, int* counts, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[experts[i]], 1);
}
__global__ void iota_kernel(int* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i;
}

std::vector<torch::Tensor> cub_device_sort(torch::Tensor experts, torch::Tensor scores, int64_t count) {
    const int n = experts.numel(), blocks = (n + 127) / 128;
    auto ints = experts.options();
    auto counts = torch::zeros({count}, ints), offsets = torch::empty({count}, ints), tokens = torch::empty({n}, ints);
    auto sorted = torch::empty({n}, ints), order = torch::empty({n}, ints), descending = torch::empty_like(scores);
    count_kernel<<<blocks, 128>>>(experts.data_ptr<int>(), counts.data_ptr<int>(), n);
    iota_kernel<<<blocks, 128>>>(tokens.data_ptr<int>(), n);

    size_t scan_bytes = 0, sort_bytes = 0, keys_bytes = 0;
    cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes, counts.data_ptr<int>(), offsets.data_ptr<int>(), static_cast<int>(count));
    cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, experts.data_ptr<int>(), sorted.data_ptr<int>(), tokens.data_ptr<int>(),
                                    order.data_ptr<int>(), n, 0, 8);
    cub::DeviceRadixSort::SortKeysDescending(nullptr, keys_bytes, scores.data_ptr<float>(), descending.data_ptr<float>(), n);
    void* storage = nullptr;
    cudaMalloc(&storage, std::max({scan_bytes, sort_bytes, keys_bytes}));
    cub::DeviceScan::ExclusiveSum(storage, scan_bytes, counts.data_ptr<int>(), offsets.data_ptr<int>(), static_cast<int>(count));
    cub::DeviceRadixSort::SortPairs(storage, sort_bytes, experts.data_ptr<int>(), sorted.data_ptr<int>(), tokens.data_ptr<int>(),
                                    order.data_ptr<int>(), n, 0, 8);
    cub::DeviceRadixSort::SortKeysDescending(storage, keys_bytes, scores.data_ptr<float>(), descending.data_ptr<float>(), n);
    cudaFree(storage);
    return {offsets, sorted, order, descending};
}
"""


def cases():
    return [(torch.randint(0, 12, (n,), dtype=torch.int32), torch.randn(n), 12) for n in (1, 400)]


def answer(experts, scores, count):
    counts = torch.bincount(experts, minlength=count)
    sorted_experts, order = experts.sort(stable=True)
    return [(counts.cumsum(0) - counts).int(), sorted_experts, order.int(), scores.sort(descending=True).values]
