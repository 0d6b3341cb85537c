"""A bfloat16 matrix product on tensor cores in 32x8 tiles, whose accumulator starts as the bias."""

import torch

CPP = "torch::Tensor wmma_bf16_bias(torch::Tensor a, torch::Tensor b, torch::Tensor bias);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda_bf16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;
typedef __nv_bfloat16 bf16;

__global__ void bias_gemm(const bf16* a, const bf16* b, const float* bias, float* c, int N, int K) {
    __shared__ __align__(32) float start[32 * 8];
    for (int i = threadIdx.x; i < 32 * 8; i += 32) start[i] = bias[blockIdx.x * 8 + i % 8];
    __syncwarp();
    wmma::fragment<wmma::accumulator, 32, 8, 16, float> acc;
    wmma::load_matrix_sync(acc, start, 8, wmma::mem_row_major);
    for (int k = 0; k < K; k += 16) {
        wmma::fragment<wmma::matrix_a, 32, 8, 16, bf16, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 32, 8, 16, bf16, wmma::row_major> fb;
        wmma::load_matrix_sync(fa, a + blockIdx.y * 32 * K + k, K);
        wmma::load_matrix_sync(fb, b + k * N + blockIdx.x * 8, N);
        wmma::mma_sync(acc, fa, fb, acc);
    }
    wmma::store_matrix_sync(c + blockIdx.y * 32 * N + blockIdx.x * 8, acc, N, wmma::mem_row_major);
}

torch::Tensor wmma_bf16_bias(torch::Tensor a, torch::Tensor b, torch::Tensor bias) {
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    TORCH_CHECK(M % 32 == 0 && N % 8 == 0 && K % 16 == 0);
    auto c = torch::empty({M, N}, bias.options());
    bias_gemm<<<dim3(N / 8, M / 32), 32>>>(reinterpret_cast<bf16*>(a.data_ptr<at::BFloat16>()),
        reinterpret_cast<bf16*>(b.data_ptr()), bias.data_ptr<float>(), c.data_ptr<float>(), N, K);
    return c;
}
"""


def cases():
    return [
        (torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16(), torch.randn(n))
        for m, k, n in [(32, 16, 8), (64, 48, 24)]
    ]


def answer(a, b, bias):
    return a.float() @ b.float() + bias
