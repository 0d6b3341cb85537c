"""Integer atomics in shared memory: counts, sums, maxima and flags of a few classes, and places within a class."""

import torch

CPP = "std::vector<torch::Tensor> shared_counters(torch::Tensor classes, torch::Tensor values, int64_t count);"
CUDA = r"""
#include <torch/extension.h>
#include <climits>

constexpr int THREADS = 128;

struct Tables {
    int *counts, *sums, *largest, *flags, *places;
};

// A block has a part of the elements. `places` says how many elements of its class an element's block had counted before.
__global__ void counters_kernel(const int* __restrict__ classes, const int* __restrict__ values, Tables out, int n, int count) {
    extern __shared__ int shared[];
    int *counts = shared, *sums = counts + count, *largest = sums + count, *flags = largest + count, *taken = flags + count;
    for (int c = threadIdx.x; c < count; c += THREADS) counts[c] = sums[c] = flags[c] = taken[c] = 0, largest[c] = INT_MIN;
    __syncthreads();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        const int c = classes[i], v = values[i];
        atomicAdd(&counts[c], 1);
        atomicAdd(&sums[c], v);
        atomicMax(&largest[c], v);
        atomicOr(&flags[c], 1 << (v & 15));
        out.places[i] = atomicAdd(&taken[c], 1);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < count; c += THREADS)
        if (counts[c]) {
            atomicAdd(&out.counts[c], counts[c]);
            atomicAdd(&out.sums[c], sums[c]);
            atomicMax(&out.largest[c], largest[c]);
            atomicOr(&out.flags[c], flags[c]);
        }
}

std::vector<torch::Tensor> shared_counters(torch::Tensor classes, torch::Tensor values, int64_t count) {
    const int n = classes.numel();
    auto counts = torch::zeros({count}, classes.options()), sums = torch::zeros_like(counts), flags = torch::zeros_like(counts);
    auto largest = torch::full({count}, INT_MIN, classes.options()), places = torch::empty_like(classes);
    const Tables out{counts.data_ptr<int>(), sums.data_ptr<int>(), largest.data_ptr<int>(), flags.data_ptr<int>(), places.data_ptr<int>()};
    counters_kernel<<<(n + THREADS - 1) / THREADS, THREADS, 5 * count * sizeof(int)>>>(classes.data_ptr<int>(), values.data_ptr<int>(), out, n, count);
    // The order within a class depends on time, so only the sum of the places is compared.
    return {counts, sums, largest, flags, places.sum()};
}
"""
THREADS = 128


def cases():
    sizes = [(1, 1), (100, 3), (1000, 5)]
    return [
        (torch.randint(0, c, (n,), dtype=torch.int32), torch.randint(-99, 99, (n,), dtype=torch.int32), c)
        for n, c in sizes
    ]


def answer(classes, values, count):
    each = [values[classes == c] for c in range(count)]
    counts = torch.tensor([len(v) for v in each], dtype=torch.int32)
    sums = torch.tensor([int(v.sum()) for v in each], dtype=torch.int32)
    largest = torch.tensor([int(v.max()) if len(v) else -(2**31) for v in each], dtype=torch.int32)
    flags = torch.tensor([sum({1 << (int(x) & 15) for x in v}) for v in each], dtype=torch.int32)
    of_blocks = [torch.bincount(part.long(), minlength=count) for part in classes.split(THREADS)]
    return [counts, sums, largest, flags, sum((b * (b - 1) // 2).sum() for b in of_blocks)]
