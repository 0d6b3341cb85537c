"""An int8 matrix product on tensor cores with a scale per row and per column, by `mma.sync` with 32-bit sums."""

import torch

CPP = "torch::Tensor int8_mma_gemm(torch::Tensor a, torch::Tensor b, torch::Tensor row_scale, torch::Tensor column_scale);"
CUDA = r"""
#include <torch/extension.h>
#include <cstdint>

// A is [M, K] and B is [N, K], both row-major. One warp computes a tile of 16 x 8.
__global__ void gemm_kernel(const int8_t* __restrict__ A, const int8_t* __restrict__ B, const float* __restrict__ row_scale,
                            const float* __restrict__ column_scale, float* __restrict__ C, int M, int N, int K) {
    const int lane = threadIdx.x, group = lane >> 2, four = lane & 3;
    const int row = blockIdx.y * 16 + group, column = blockIdx.x * 8 + group;
    int sums[4] = {0, 0, 0, 0};
    auto word = [&](const int8_t* matrix, int r, int rows, int k) {
        return r < rows ? *reinterpret_cast<const uint32_t*>(&matrix[static_cast<size_t>(r) * K + k]) : 0u;
    };
    for (int k = 0; k < K; k += 32) {
        const uint32_t a0 = word(A, row, M, k + four * 4), a1 = word(A, row + 8, M, k + four * 4);
        const uint32_t a2 = word(A, row, M, k + 16 + four * 4), a3 = word(A, row + 8, M, k + 16 + four * 4);
        const uint32_t b0 = word(B, column, N, k + four * 4), b1 = word(B, column, N, k + 16 + four * 4);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    for (int i = 0; i < 4; ++i) {
        const int r = blockIdx.y * 16 + group + (i >> 1) * 8, c = blockIdx.x * 8 + four * 2 + (i & 1);
        if (r < M && c < N) C[static_cast<size_t>(r) * N + c] = sums[i] * row_scale[r] * column_scale[c];
    }
}

torch::Tensor int8_mma_gemm(torch::Tensor a, torch::Tensor b, torch::Tensor row_scale, torch::Tensor column_scale) {
    const int M = a.size(0), N = b.size(0), K = a.size(1);
    TORCH_CHECK(K % 32 == 0);
    auto c = torch::empty({M, N}, row_scale.options());
    gemm_kernel<<<dim3((N + 7) / 8, (M + 15) / 16), 32>>>(a.data_ptr<int8_t>(), b.data_ptr<int8_t>(), row_scale.data_ptr<float>(),
                                                        column_scale.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    return c;
}
"""


def cases():
    return [
        (
            torch.randint(-128, 128, (m, k), dtype=torch.int8),
            torch.randint(-128, 128, (n, k), dtype=torch.int8),
            torch.rand(m),
            torch.rand(n),
        )
        for m, n, k in [(3, 5, 32), (35, 20, 96)]
    ]


def answer(a, b, row_scale, column_scale):
    return (a.double() @ b.double().T * row_scale[:, None] * column_scale).float()
