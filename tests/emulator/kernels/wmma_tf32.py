"""A float matrix product on tensor cores in TF32, loaded straight from global memory where tiles are whole."""

import torch

CPP = "torch::Tensor wmma_tf32(torch::Tensor a, torch::Tensor b);"
CUDA = r"""
#include <torch/extension.h>
#include <mma.h>
using namespace nvcuda;

__global__ void tf32_kernel(const float* a, const float* b, float* c, int M, int N, int K) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    const int row = blockIdx.y * 16, col = blockIdx.x * 16;
    for (int k = 0; k < K; k += 8) {
        wmma::load_matrix_sync(fa, a + row * K + k, K);
        wmma::load_matrix_sync(fb, b + k * N + col, N);
        for (int t = 0; t < fa.num_elements; t++) fa.x[t] = wmma::__float_to_tf32(fa.x[t]);
        for (int t = 0; t < fb.num_elements; t++) fb.x[t] = wmma::__float_to_tf32(fb.x[t]);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c + row * N + col, fc, N, wmma::mem_row_major);
}

torch::Tensor wmma_tf32(torch::Tensor a, torch::Tensor b) {
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    TORCH_CHECK(M % 16 == 0 && N % 16 == 0 && K % 8 == 0, "whole tiles only");
    auto c = torch::empty({M, N}, a.options());
    tf32_kernel<<<dim3(N / 16, M / 16), 32>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    return c;
}
"""
TOLERANCE = {"rtol": 2e-3, "atol": 2e-2}


def cases():
    return [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in [(16, 8, 16), (48, 40, 32)]]


def answer(a, b):
    return a @ b
