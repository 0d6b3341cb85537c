"""Stream compaction, run lengths, a histogram and sums per segment, all by device-wide algorithms of cub."""

from itertools import pairwise

import torch

CPP = "std::vector<torch::Tensor> cub_device_select(torch::Tensor x, torch::Tensor flags, torch::Tensor offsets);"
CUDA = r"""
#include <torch/extension.h>
#include <cub/cub.cuh>

struct Even {
    __device__ bool operator()(int v) const { return v % 2 == 0; }
};

class Storage {
 public:
    ~Storage() { cudaFree(data_); }
    template <class Call>
    void run(Call call) {
        size_t bytes = 0;
        TORCH_CHECK(call(nullptr, bytes) == cudaSuccess);
        cudaFree(data_);
        TORCH_CHECK(cudaMalloc(&data_, bytes) == cudaSuccess);
        TORCH_CHECK(call(data_, bytes) == cudaSuccess);
    }

 private:
    void* data_ = nullptr;
};

std::vector<torch::Tensor> cub_device_select(torch::Tensor x, torch::Tensor flags, torch::Tensor offsets) {
    const int n = x.numel(), segments = offsets.numel() - 1;
    auto ints = x.options();
    auto kept = torch::zeros({n}, ints), even = torch::zeros({n}, ints), unique = torch::zeros({n}, ints), lengths = torch::zeros({n}, ints);
    auto counts = torch::zeros({3}, ints), bins = torch::empty({5}, ints), sums = torch::empty({segments}, ints);
    int *in = x.data_ptr<int>(), *count = counts.data_ptr<int>(), *begin = offsets.data_ptr<int>();
    Storage storage;
    storage.run([&](void* p, size_t& b) { return cub::DeviceSelect::Flagged(p, b, in, flags.data_ptr<uint8_t>(), kept.data_ptr<int>(), count, n); });
    storage.run([&](void* p, size_t& b) { return cub::DeviceSelect::If(p, b, in, even.data_ptr<int>(), count + 1, n, Even{}); });
    storage.run([&](void* p, size_t& b) {
        return cub::DeviceRunLengthEncode::Encode(p, b, in, unique.data_ptr<int>(), lengths.data_ptr<int>(), count + 2, n);
    });
    storage.run([&](void* p, size_t& b) { return cub::DeviceHistogram::HistogramEven(p, b, in, bins.data_ptr<int>(), 6, 0, 10, n); });
    storage.run([&](void* p, size_t& b) {
        return cub::DeviceSegmentedReduce::Sum(p, b, in, sums.data_ptr<int>(), segments, begin, begin + 1);
    });
    return {kept, even, unique, lengths, counts, bins, sums};
}
"""


def cases():
    x = torch.randint(0, 12, (200,), dtype=torch.int32)
    return [(x, torch.randint(0, 2, (200,), dtype=torch.uint8), torch.tensor([0, 3, 3, 150, 200], dtype=torch.int32))]


def answer(x, flags, offsets):
    def padded(values):
        return torch.nn.functional.pad(values.int(), (0, len(x) - len(values)))

    kept, even = x[flags > 0], x[x % 2 == 0]
    unique, lengths = torch.unique_consecutive(x, return_counts=True)
    counts = torch.tensor([len(kept), len(even), len(unique)], dtype=torch.int32)
    bins = torch.bincount(x[x < 10] // 2, minlength=5).int()
    ends = offsets.tolist()
    sums = torch.tensor([int(x[a:b].sum()) for a, b in pairwise(ends)], dtype=torch.int32)
    return [padded(kept), padded(even), padded(unique), padded(lengths), counts, bins, sums]
