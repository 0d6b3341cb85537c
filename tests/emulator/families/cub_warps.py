"""Rows of 16 by `cub::WarpReduce` on half warps, sums of runs by its segmented form, and a `WarpScan`."""

import torch

CPP = "std::vector<torch::Tensor> cub_warps(torch::Tensor x, torch::Tensor heads);"
CUDA = r"""
#include <torch/extension.h>
#include <cub/cub.cuh>

constexpr int kWarps = 2;

__global__ void rows_kernel(const float* x, float* largest, float* running, int rows) {
    using Reduce = cub::WarpReduce<float, 16>;
    using Scan = cub::WarpScan<float, 16>;
    __shared__ typename Reduce::TempStorage reduce[2 * kWarps];
    __shared__ typename Scan::TempStorage scan[2 * kWarps];
    const int group = threadIdx.x / 16, row = blockIdx.x * 2 * kWarps + group, column = threadIdx.x % 16;
    const float value = row < rows ? x[row * 16 + column] : 0.f;
    float sum;
    Scan(scan[group]).InclusiveSum(value, sum);
    const float best = Reduce(reduce[group]).Reduce(value, cuda::maximum<>{});
    if (row >= rows) return;
    running[row * 16 + column] = sum;
    if (column == 0) largest[row] = best;
}

__global__ void runs_kernel(const float* x, const bool* heads, float* sums) {
    using Reduce = cub::WarpReduce<float>;
    __shared__ typename Reduce::TempStorage storage;
    const int i = blockIdx.x * 32 + threadIdx.x;
    const float sum = Reduce(storage).HeadSegmentedSum(x[i], heads[i]);
    sums[i] = heads[i] || threadIdx.x == 0 ? sum : 0.f;
}

std::vector<torch::Tensor> cub_warps(torch::Tensor x, torch::Tensor heads) {
    const int rows = x.size(0), blocks = x.numel() / 32;
    TORCH_CHECK(x.size(1) == 16 && rows % 2 == 0);
    auto largest = torch::empty({rows}, x.options()), running = torch::empty_like(x), sums = torch::empty_like(x);
    rows_kernel<<<(rows + 3) / 4, 32 * kWarps>>>(x.data_ptr<float>(), largest.data_ptr<float>(), running.data_ptr<float>(), rows);
    runs_kernel<<<blocks, 32>>>(x.data_ptr<float>(), heads.data_ptr<bool>(), sums.data_ptr<float>());
    return {largest, running, sums};
}
"""


def cases():
    return [(torch.randn(10, 16), torch.rand(10, 16) < 0.2)]


def answer(x, heads):
    values, starts = x.view(-1, 32), heads.view(-1, 32).clone()
    starts[:, 0] = True
    sums = torch.zeros_like(values)
    for warp, start in enumerate(starts):
        run = start.cumsum(0) - 1
        sums[warp, start] = torch.zeros(int(run[-1]) + 1).index_add(0, run, values[warp])
    return [x.max(1).values, x.cumsum(1), sums.view_as(x)]
