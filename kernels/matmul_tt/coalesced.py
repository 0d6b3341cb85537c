"""Every access of a warp is contiguous: along M for A, along K for B in loads of four, and along N for C.

Rung 1 of the ladder: which index runs fastest. `naive` already reads A (K, M) in whole cache lines, because its warps
run along M. Two accesses remain. B (N, K) is contiguous along K, so a thread reads four consecutive k at once: five
loads for four terms instead of eight. C (M, N) is contiguous along N, so a block turns its 32 x 32 results in shared
memory, and its warps write rows of C.

Hypothesis: `naive` is limited by the number of loads that a multiprocessor can issue, not by their bytes, so the time
falls by a factor of about 1.6, as the loads do. The turned results gain nothing measurable at K = 8192, where a thread
writes one value for 16,384 that it reads.

Measured on an H200 at full size: 39.85 ms, 1.21 times as fast as `naive`. The number of loads is not the whole limit.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>

constexpr int TILE = 32;

// `aligned` says that four floats from a k that is a multiple of 4 can be read as one float4 in each row of B.
__global__ void __launch_bounds__(TILE * TILE)
coalesced_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                 int64_t M, int64_t K, int64_t N, bool aligned) {
    __shared__ float turned[TILE][TILE + 1];  // one column more, so that a column lies in 32 different banks

    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t tiles_n = (N + TILE - 1) / TILE;
    const int64_t first_m = blockIdx.x / tiles_n * TILE, first_n = blockIdx.x % tiles_n * TILE;
    const int64_t m = first_m + x, n = first_n + y;

    float sum = 0.0f;
    if (m < M && n < N) {
        const float* column = A + m;     // column[k * M] is A[k][m]: a warp reads 32 consecutive m
        const float* row = B + n * K;    // row[k] is B[n][k]: all threads of a warp read the same
        int64_t k = 0;
        if (aligned) {
            for (; k + 4 <= K; k += 4) {
                const float4 b = *reinterpret_cast<const float4*>(row + k);
                sum += column[k * M] * b.x;
                sum += column[(k + 1) * M] * b.y;
                sum += column[(k + 2) * M] * b.z;
                sum += column[(k + 3) * M] * b.w;
            }
        }
        for (; k < K; ++k) sum += column[k * M] * row[k];
    }

    turned[x][y] = sum;
    __syncthreads();
    if (first_m + y < M && first_n + x < N) C[(first_m + y) * N + first_n + x] = turned[y][x];
}

cudaError_t launch_coalesced(const float* A, const float* B, float* C, int64_t M, int64_t K, int64_t N,
                             cudaStream_t stream) {
    const int64_t blocks = (M + TILE - 1) / TILE * ((N + TILE - 1) / TILE);
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;  // more than a grid can have
    const bool aligned = K % 4 == 0 && reinterpret_cast<uintptr_t>(B) % 16 == 0;
    coalesced_kernel<<<static_cast<unsigned>(blocks), dim3(TILE, TILE), 0, stream>>>(A, B, C, M, K, N, aligned);
    return cudaGetLastError();
}
"""

# torch's headers stay in this half, where only g++ reads them: they cost nvcc many times what the kernel costs.
# Naming the few in use also spares g++ the whole of torch/extension.h, which load_inline would put first.
CPP_SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>

// Defined in the CUDA source, which chooses grid and block.
cudaError_t launch_coalesced(const float* A, const float* B, float* C, int64_t M, int64_t K, int64_t N,
                             cudaStream_t stream);

static void check_operands(const at::Tensor& A, const at::Tensor& B) {
    TORCH_CHECK(A.is_cuda() && B.is_cuda() && A.device() == B.device(),
                "A and B must be on one CUDA device, got ", A.device(), " and ", B.device());
    TORCH_CHECK(A.scalar_type() == at::kFloat && B.scalar_type() == at::kFloat,
                "A and B must be float32, got ", A.scalar_type(), " and ", B.scalar_type());
    TORCH_CHECK(A.dim() == 2 && B.dim() == 2,
                "A (K, M) and B (N, K) must be matrices, got shapes ", A.sizes(), " and ", B.sizes());
    TORCH_CHECK(A.size(0) == B.size(1),
                "A (K, M) and B (N, K) must share K, got shapes ", A.sizes(), " and ", B.sizes());
    TORCH_CHECK(A.numel() > 0 && B.numel() > 0,
                "no dimension may be 0, got shapes ", A.sizes(), " and ", B.sizes());
}

// C (M, N) = A^T B^T for row-major A (K, M) and B (N, K).
at::Tensor matmul_tt(at::Tensor A, at::Tensor B) {
    check_operands(A, B);
    const c10::cuda::CUDAGuard guard(A.device());
    A = A.contiguous();
    B = B.contiguous();
    const int64_t K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = at::empty({M, N}, A.options());
    C10_CUDA_CHECK(launch_coalesced(A.const_data_ptr<float>(), B.const_data_ptr<float>(),
                                    C.mutable_data_ptr<float>(), M, K, N, c10::cuda::getCurrentCUDAStream()));
    return C;
}
"""

ops = load_inline(
    name="matmul_tt_coalesced",
    cpp_sources=[CPP_SOURCE],
    cuda_sources=[CUDA_SOURCE],
    functions=["matmul_tt"],
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return ops.matmul_tt(A, B)
