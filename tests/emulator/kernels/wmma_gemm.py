"""A half-precision matrix product on tensor cores, accumulated in float, with a scaled accumulator at the end."""

import torch

CPP = "torch::Tensor wmma_gemm(torch::Tensor a, torch::Tensor b, double alpha);"
CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int WMMA_M = 16, WMMA_N = 16, WMMA_K = 16, WARPS = 4;

// Each warp owns one 16x16 tile of C; B is given transposed.
__global__ void wmma_kernel(const half* __restrict__ a, const half* __restrict__ bt, float* __restrict__ c, int M, int N, int K, float alpha) {
    __shared__ half tile_a[16][WMMA_K + 8];
    __shared__ half tile_b[WARPS][16][WMMA_K + 8];
    __shared__ float tile_c[WARPS][16][20];
    const int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
    const int row0 = blockIdx.y * 16, col0 = (blockIdx.x * WARPS + warp) * 16;

    wmma::fragment<wmma::matrix_a, WMMA_M, WMMA_N, WMMA_K, half, wmma::row_major> a_frag;
    wmma::fragment<wmma::matrix_b, WMMA_M, WMMA_N, WMMA_K, half, wmma::col_major> b_frag;
    wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    const half zero = __float2half(0.0f);
    for (int k0 = 0; k0 < K; k0 += WMMA_K) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) {
            const int r = i / 16, k = i % 16;
            tile_a[r][k] = row0 + r < M && k0 + k < K ? a[(row0 + r) * K + k0 + k] : zero;
        }
        for (int i = lane; i < 256; i += 32) {
            const int n = i / 16, k = i % 16;
            tile_b[warp][n][k] = col0 + n < N && k0 + k < K ? bt[(col0 + n) * K + k0 + k] : zero;
        }
        __syncthreads();
        wmma::load_matrix_sync(a_frag, &tile_a[0][0], WMMA_K + 8);
        wmma::load_matrix_sync(b_frag, &tile_b[warp][0][0], WMMA_K + 8);
        wmma::mma_sync(acc, a_frag, b_frag, acc);
        __syncthreads();
    }
    for (int i = 0; i < acc.num_elements; i++) acc.x[i] *= alpha;
    wmma::store_matrix_sync(&tile_c[warp][0][0], acc, 20, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < 256; i += 32)
        if (row0 + i / 16 < M && col0 + i % 16 < N) c[(row0 + i / 16) * N + col0 + i % 16] = tile_c[warp][i / 16][i % 16];
}

torch::Tensor wmma_gemm(torch::Tensor a, torch::Tensor b, double alpha) {
    TORCH_CHECK(a.scalar_type() == torch::kHalf && b.scalar_type() == torch::kHalf, "half precision only");
    const auto bt = b.t().contiguous();
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    auto c = torch::empty({M, N}, a.options().dtype(torch::kFloat32));
    dim3 grid((N + 16 * WARPS - 1) / (16 * WARPS), (M + 15) / 16);
    wmma_kernel<<<grid, 32 * WARPS, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const half*>(a.data_ptr<at::Half>()), reinterpret_cast<const half*>(bt.data_ptr<at::Half>()),
        c.data_ptr<float>(), M, N, K, static_cast<float>(alpha));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""


def cases():
    return [
        (torch.randn(m, k).half(), torch.randn(k, n).half(), 2.0) for m, k, n in [(1, 1, 1), (33, 47, 65), (16, 16, 64)]
    ]


def answer(a, b, alpha):
    return alpha * (a.float() @ b.float())
