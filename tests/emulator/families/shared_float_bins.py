"""Means of the rows of each cluster: sums by float atomics in shared memory, which are loops on a GPU."""

import torch

CPP = "torch::Tensor shared_float_bins(torch::Tensor x, torch::Tensor clusters, int64_t count);"
CUDA = r"""
#include <torch/extension.h>

constexpr int THREADS = 64, ROWS = 16;

// Each block adds ROWS rows to sums in shared memory, whose last column counts the rows of a cluster.
__global__ void sums_kernel(const float* __restrict__ x, const int64_t* __restrict__ clusters, float* sums, int rows, int columns, int count) {
    extern __shared__ float own[];
    const int width = columns + 1;
    for (int i = threadIdx.x; i < count * width; i += THREADS) own[i] = 0;
    __syncthreads();
    const int first = blockIdx.x * ROWS, last = min(first + ROWS, rows);
    for (int i = threadIdx.x; i < (last - first) * columns; i += THREADS) {
        const int row = first + i % (last - first), column = i / (last - first);
        atomicAdd(&own[clusters[row] * width + column], x[row * columns + column]);
        if (column == 0) atomicAdd(&own[clusters[row] * width + columns], 1.0f);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * width; i += THREADS)
        if (own[i] != 0) atomicAdd(&sums[i], own[i]);
}

__global__ void means_kernel(const float* sums, float* means, int columns, int count) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count * columns) return;
    const float* own = sums + i / columns * (columns + 1);
    means[i] = own[columns] > 0 ? own[i % columns] / own[columns] : 0.0f;
}

torch::Tensor shared_float_bins(torch::Tensor x, torch::Tensor clusters, int64_t count) {
    const int rows = x.size(0), columns = x.size(1);
    auto sums = torch::zeros({count, columns + 1}, x.options()), means = torch::empty({count, columns}, x.options());
    sums_kernel<<<(rows + ROWS - 1) / ROWS, THREADS, count * (columns + 1) * sizeof(float)>>>(
        x.data_ptr<float>(), clusters.data_ptr<int64_t>(), sums.data_ptr<float>(), rows, columns, count);
    means_kernel<<<(count * columns + THREADS - 1) / THREADS, THREADS>>>(sums.data_ptr<float>(), means.data_ptr<float>(), columns, count);
    return means;
}
"""


def cases():
    return [(torch.randn(n, d), torch.randint(0, c, (n,)), c) for n, d, c in [(1, 1, 1), (50, 7, 3), (200, 24, 4)]]


def answer(x, clusters, count):
    return torch.stack(
        [x[clusters == c].mean(0) if (clusters == c).any() else torch.zeros(x.shape[1]) for c in range(count)]
    )
