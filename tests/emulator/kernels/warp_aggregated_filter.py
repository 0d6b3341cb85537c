"""Counting and keeping what is above a limit: one atomic for all the lanes that found something together."""

import torch

CPP = "torch::Tensor warp_aggregated_filter(torch::Tensor x, int64_t limit);"
CUDA = r"""
#include <torch/extension.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__device__ __forceinline__ int reserve(int* counter) {
    cg::coalesced_group active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(counter, static_cast<int>(active.size()));
    return active.shfl(base, 0) + active.thread_rank();
}

__device__ __forceinline__ int reserve_by_mask(int* counter) {
    const unsigned mask = __activemask();
    const int leader = __ffs(mask) - 1, lane = threadIdx.x & 31;
    int base = 0;
    if (lane == leader) base = atomicAdd(counter, __popc(mask));
    return __shfl_sync(mask, base, leader) + __popc(mask & ((1u << lane) - 1));
}

__global__ void filter_kernel(const int* x, int* kept, int* counters, int n, int limit) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (x[i] > limit) {
        kept[reserve(&counters[0])] = x[i];
        reserve_by_mask(&counters[1]);
    } else if (x[i] < -limit) {
        reserve_by_mask(&counters[2]);
    }
}

torch::Tensor warp_aggregated_filter(torch::Tensor x, int64_t limit) {
    auto kept = torch::full_like(x, INT_MAX), counters = torch::zeros({3}, x.options());
    filter_kernel<<<(x.numel() + 95) / 96, 96>>>(x.data_ptr<int>(), kept.data_ptr<int>(), counters.data_ptr<int>(), x.numel(), limit);
    return torch::cat({std::get<0>(kept.sort()), counters});
}
"""


def cases():
    return [(torch.randint(-100, 100, (n,), dtype=torch.int32), 40) for n in (1, 31, 1000)]


def answer(x, limit):
    kept = x[x > limit].sort().values
    filler = torch.full((len(x) - len(kept),), 2**31 - 1, dtype=torch.int32)
    counts = torch.tensor([len(kept), len(kept), int((x < -limit).sum())], dtype=torch.int32)
    return torch.cat([kept, filler, counts])
