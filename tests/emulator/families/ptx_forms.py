"""Inline PTX as published kernels wrap it: shuffles, votes, bit fields, carries, wide products and named barriers."""

import torch

CPP = "torch::Tensor ptx_forms(torch::Tensor a, torch::Tensor b);"
CUDA = r"""
#include <torch/extension.h>
#include <cstdint>

__device__ __forceinline__ uint32_t field(uint32_t value, uint32_t start, uint32_t bits) {
    uint32_t out;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(value), "r"(start), "r"(bits));
    return out;
}
__device__ __forceinline__ uint32_t insert(uint32_t into, uint32_t value, uint32_t start, uint32_t bits) {
    uint32_t out;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(out) : "r"(value), "r"(into), "r"(start), "r"(bits));
    return out;
}
__device__ __forceinline__ void add_128(uint32_t (&s)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    asm("add.cc.u32 %0, %4, %8;\n\taddc.cc.u32 %1, %5, %9;\n\taddc.cc.u32 %2, %6, %10;\n\taddc.u32 %3, %7, %11;"
        : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]));
}
__device__ __forceinline__ uint32_t lane_id() {
    uint32_t out;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(out));
    return out;
}

__global__ void forms_kernel(const uint32_t* __restrict__ a, const uint32_t* __restrict__ b, uint32_t* __restrict__ out, int n) {
    __shared__ uint32_t handed[64];
    const int i = blockIdx.x * 64 + threadIdx.x;
    const uint32_t x = a[i], y = b[i];
    uint32_t* to = &out[i * 16];
    to[0] = field(x, 5, 9);
    to[1] = insert(x, y, 12, 7);
    const uint32_t left[4] = {x, y, x ^ y, x}, right[4] = {y, ~y, ~x, y};
    uint32_t sum[4];
    add_128(sum, left, right);
    for (int j = 0; j < 4; ++j) to[2 + j] = sum[j];
    uint32_t count, zeros, reversed, top, other, voted, added;
    asm("popc.b32 %0, %1;" : "=r"(count) : "r"(x));
    asm("clz.b32 %0, %1;" : "=r"(zeros) : "r"(y >> 7));
    asm("brev.b32 %0, %1;" : "=r"(reversed) : "r"(x));
    asm("bfind.u32 %0, %1;" : "=r"(top) : "r"(y | 1));
    asm volatile("shfl.sync.bfly.b32 %0, %1, 3, 0x1f, 0xffffffff;" : "=r"(other) : "r"(x));
    asm volatile("{\n\t.reg .pred p;\n\tsetp.gt.u32 p, %1, %2;\n\tvote.sync.ballot.b32 %0, p, 0xffffffff;\n\t}" : "=r"(voted) : "r"(x), "r"(y));
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(added) : "r"(x & 0xffff));
    to[6] = count, to[7] = zeros, to[8] = reversed, to[9] = top, to[10] = other, to[11] = voted, to[12] = added;
    uint64_t high;
    asm("mul.hi.u64 %0, %1, %2;" : "=l"(high) : "l"(static_cast<uint64_t>(x) << 32 | y), "l"(static_cast<uint64_t>(y) << 32 | x));
    to[13] = static_cast<uint32_t>(high);
    int dot;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(dot) : "r"(x), "r"(y), "r"(lane_id()));
    to[14] = dot;
    // The two warps meet at barrier 1: the first one only arrives.
    handed[threadIdx.x] = x + 1;
    if (threadIdx.x < 32) asm volatile("bar.arrive 1, 64;" ::: "memory");
    else asm volatile("bar.sync 1, 64;" ::: "memory");
    to[15] = threadIdx.x < 32 ? 0 : handed[threadIdx.x - 32];
}

torch::Tensor ptx_forms(torch::Tensor a, torch::Tensor b) {
    const int n = a.numel();
    TORCH_CHECK(n % 64 == 0);
    auto out = torch::empty({n, 16}, a.options());
    auto words = [](torch::Tensor& t) { return reinterpret_cast<uint32_t*>(t.data_ptr<int>()); };
    forms_kernel<<<n / 64, 64>>>(words(a), words(b), words(out), n);
    return out;
}
"""


def cases():
    return [tuple(torch.randint(-(2**31), 2**31, (128,), dtype=torch.int32) for _ in range(2))]


def row(i, a, b):
    word = 0xFFFFFFFF
    x, y = a[i], b[i]
    total = sum(v << 32 * j for j, v in enumerate([x, y, x ^ y, x])) + sum(
        v << 32 * j for j, v in enumerate([y, ~y & word, ~x & word, y])
    )
    warp = range(i // 32 * 32, i // 32 * 32 + 32)
    return [
        x >> 5 & 0x1FF,
        x & ~(0x7F << 12) | (y & 0x7F) << 12,
        *(total >> 32 * j & word for j in range(4)),
        x.bit_count(),
        32 - (y >> 7).bit_length(),
        int(f"{x:032b}"[::-1], 2),
        (y | 1).bit_length() - 1,
        a[i ^ 3],
        sum((a[j] > b[j]) << j % 32 for j in warp),
        sum(a[j] & 0xFFFF for j in warp),
        ((x << 32 | y) * (y << 32 | x) >> 64) & word,
        sum((x >> 8 * j & 255) * (y >> 8 * j & 255) for j in range(4)) + i % 32,
        (a[i - 32] + 1) & word if i % 64 >= 32 else 0,
    ]


def answer(a, b):
    a, b = ([v & 0xFFFFFFFF for v in t.tolist()] for t in (a, b))
    return torch.tensor([row(i, a, b) for i in range(len(a))]).to(torch.int32)
