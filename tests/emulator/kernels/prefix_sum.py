"""A scan of any length: blocks scan with up and down sweeps, their sums are scanned the same way, and added."""

import torch

CPP = "torch::Tensor prefix_sum(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>

constexpr int kThreads = 64, kElements = 2 * kThreads;
#define CONFLICT_FREE(n) ((n) + ((n) >> 5))

template <typename T>
__global__ void scan_blocks(const T* in, T* out, T* sums, int64_t n) {
    extern __shared__ __align__(16) unsigned char raw[];
    T* temp = reinterpret_cast<T*>(raw);
    const int tid = threadIdx.x;
    const int64_t base = (int64_t)blockIdx.x * kElements;
    const T first = base + tid < n ? in[base + tid] : T(0), second = base + tid + kThreads < n ? in[base + tid + kThreads] : T(0);
    temp[CONFLICT_FREE(tid)] = first;
    temp[CONFLICT_FREE(tid + kThreads)] = second;
    int offset = 1;
    for (int d = kElements >> 1; d > 0; d >>= 1, offset <<= 1) {
        __syncthreads();
        if (tid < d) {
            const int ai = CONFLICT_FREE(offset * (2 * tid + 1) - 1), bi = CONFLICT_FREE(offset * (2 * tid + 2) - 1);
            temp[bi] += temp[ai];
        }
    }
    if (tid == 0) {
        if (sums) sums[blockIdx.x] = temp[CONFLICT_FREE(kElements - 1)];
        temp[CONFLICT_FREE(kElements - 1)] = 0;
    }
    for (int d = 1; d < kElements; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (tid < d) {
            const int ai = CONFLICT_FREE(offset * (2 * tid + 1) - 1), bi = CONFLICT_FREE(offset * (2 * tid + 2) - 1);
            const T t = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += t;
        }
    }
    __syncthreads();
    if (base + tid < n) out[base + tid] = temp[CONFLICT_FREE(tid)] + first;
    if (base + tid + kThreads < n) out[base + tid + kThreads] = temp[CONFLICT_FREE(tid + kThreads)] + second;
}

template <typename T>
__global__ void add_offsets(T* out, const T* scanned, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * kElements + threadIdx.x;
    if (blockIdx.x == 0) return;
    const T offset = scanned[blockIdx.x - 1];
    if (i < n) out[i] += offset;
    if (i + kThreads < n) out[i + kThreads] += offset;
}

template <typename T>
torch::Tensor scan(const torch::Tensor& x) {
    const int64_t n = x.numel();
    auto out = torch::empty_like(x);
    const unsigned blocks = (n + kElements - 1) / kElements;
    auto sums = torch::empty({(int64_t)blocks}, x.options());
    const size_t bytes = CONFLICT_FREE(kElements) * sizeof(T);
    scan_blocks<T><<<blocks, kThreads, bytes>>>(x.data_ptr<T>(), out.data_ptr<T>(), sums.data_ptr<T>(), n);
    if (blocks > 1) {
        const auto scanned = scan<T>(sums);
        add_offsets<T><<<blocks, kThreads>>>(out.data_ptr<T>(), scanned.template data_ptr<T>(), n);
    }
    return out;
}

torch::Tensor prefix_sum(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 1 && x.is_contiguous());
    return x.scalar_type() == torch::kFloat64 ? scan<double>(x) : x.scalar_type() == torch::kInt ? scan<int>(x) : scan<float>(x);
}
"""


def cases():
    return [
        (torch.randint(-9, 9, (n,)).to(dtype),)
        for n in (1, 63, 129, 20_000)
        for dtype in (torch.float32, torch.int32, torch.float64)
    ]


def answer(x):
    return x.cumsum(0, dtype=x.dtype)
