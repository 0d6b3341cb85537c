"""A matrix product with 8x8 register blocks, float4 loads and double-buffered shared memory."""

import torch

CPP = "torch::Tensor sgemm_register_blocks(torch::Tensor a, torch::Tensor b, double alpha);"
CUDA = r"""
#include <torch/extension.h>

#define CEIL_DIV(m, n) ((m) + (n) - 1) / (n)
#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])

template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
sgemm_kernel(int M, int N, int K, float alpha, float* __restrict__ A, float* __restrict__ B, float* __restrict__ C) {
    constexpr int kThreads = (BM / TM) * (BN / TN);
    __shared__ __align__(16) float As[2][BK][BM];
    __shared__ __align__(16) float Bs[2][BK][BN];
    const int tid = threadIdx.x, ty = tid / (BN / TN), tx = tid % (BN / TN);
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float acc[TM][TN] = {0.f};
    float frag_a[TM], frag_b[TN];

    auto load = [&](int stage, int k0) {
        for (int i = tid; i < BM * BK / 4; i += kThreads) {
            const int r = i / (BK / 4), k = i % (BK / 4) * 4;
            float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
            if (row0 + r < M) v = FLOAT4(A[(row0 + r) * K + k0 + k]);
            As[stage][k][r] = v.x, As[stage][k + 1][r] = v.y, As[stage][k + 2][r] = v.z, As[stage][k + 3][r] = v.w;
        }
        for (int i = tid; i < BK * BN / 4; i += kThreads) {
            const int k = i / (BN / 4), c = i % (BN / 4) * 4;
            FLOAT4(Bs[stage][k][c]) = col0 + c < N ? FLOAT4(B[(k0 + k) * N + col0 + c]) : make_float4(0.f, 0.f, 0.f, 0.f);
        }
    };

    load(0, 0);
    __syncthreads();
    int stage = 0;
    for (int k0 = 0; k0 < K; k0 += BK, stage ^= 1) {
        if (k0 + BK < K) load(stage ^ 1, k0 + BK);
#pragma unroll
        for (int k = 0; k < BK; ++k) {
#pragma unroll
            for (int m = 0; m < TM; m += 4) FLOAT4(frag_a[m]) = FLOAT4(As[stage][k][ty * TM + m]);
#pragma unroll
            for (int n = 0; n < TN; n += 4) FLOAT4(frag_b[n]) = FLOAT4(Bs[stage][k][tx * TN + n]);
#pragma unroll
            for (int m = 0; m < TM; ++m)
#pragma unroll
                for (int n = 0; n < TN; ++n) acc[m][n] += frag_a[m] * frag_b[n];
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < TM; ++m) {
        const int row = row0 + ty * TM + m;
        for (int n = 0; n < TN; n += 4) {
            const int col = col0 + tx * TN + n;
            if (row < M && col < N)
                FLOAT4(C[row * N + col]) = make_float4(alpha * acc[m][n], alpha * acc[m][n + 1], alpha * acc[m][n + 2], alpha * acc[m][n + 3]);
        }
    }
}

torch::Tensor sgemm_register_blocks(torch::Tensor a, torch::Tensor b, double alpha) {
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    TORCH_CHECK(K % 8 == 0 && N % 4 == 0, "K must be a multiple of 8 and N of 4");
    auto c = torch::empty({M, N}, a.options());
    dim3 grid(CEIL_DIV(N, 64), CEIL_DIV(M, 64));
    sgemm_kernel<64, 64, 8, 8, 8><<<grid, 64>>>(M, N, K, alpha, a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>());
    return c;
}
"""


def cases():
    return [(torch.randn(m, k), torch.randn(k, n), 0.5) for m, k, n in [(1, 8, 4), (67, 24, 76), (128, 64, 64)]]


def answer(a, b, alpha):
    return alpha * (a @ b)
