"""Inputs are widened to float64 and multiplied by tensor cores, which do as much in float64 as plain cores in float32.

Rung 5 of the ladder, and an odd one: more precision for less time. An H100 or H200 does 67 TFLOPS in float32 without
tensor cores, and also 67 in float64 with them (`mma.sync` on m16n8k8 tiles, DMMA). One such instruction does 1,024
multiply-adds of a warp, where FFMA does 32, so hardly any issue slots go to anything else. Tiles stay float32 in shared
memory, each operand as it is in global memory. A value is widened after it was loaded to registers.

Hypothesis: DMMA reaches a larger share of the same peak than FFMA does, so this is faster than `warp_tiled` although
each number has twice as many bits: torch's own float64 product takes 2.43 ms on an H200, its float32 product 2.77 ms.
The product of two float32 numbers is exact in float64, so only the last rounding, to float32, is left of the error.

It needs compute capability 9.0. Other GPUs lack these shapes of the instruction, and most have few float64 units.

Measured on an H200 at full size: 3.41 ms, hardly faster than `warp_tiled`, and slower than torch's float64 product.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>

// A block of 2 x 4 warps owns a TILE_M x TILE_N tile of C, a warp 64 x 32 of it.
constexpr int TILE_M = 128;
constexpr int TILE_N = 128;
constexpr int TILE_K = 16;
constexpr int WARP_M = 64;
constexpr int WARP_N = 32;
constexpr int THREADS = 256;
constexpr int STAGES = 3;  // pairs of tiles in shared memory

// An instruction multiplies 16 x 8 by 8 x 8. Lane 4 g + t has row g of A and column g of B, at k = t and t + 4, and
// columns 2 t and 2 t + 1 of C. The pitches put the 32 lanes of each load into 32 different banks.
constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 8;
constexpr int ROWS = WARP_M / MMA_M;
constexpr int COLS = WARP_N / MMA_N;
constexpr int PITCH_A = TILE_M + 8;
constexpr int PITCH_B = TILE_K + 4;

struct Stage {
    float A[TILE_K][PITCH_A];  // as in memory: M is contiguous
    float B[TILE_N][PITCH_B];  // as in memory: K is contiguous
};

// Starts to copy `count` floats, at most four, to shared memory, and zeros after them. `aligned`: both addresses are
// multiples of 16 bytes. A copy of nothing reads nothing, but its address must be valid: `anywhere`.
__device__ void copy4(float* to, const float* from, int64_t count, const float* anywhere, bool aligned) {
    const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int valid = count <= 0 ? 0 : count < 4 ? static_cast<int>(count) : 4;
    if (aligned) {
        const float* source = valid ? from : anywhere;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(valid * 4));
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* source = i < valid ? from + i : anywhere;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target + i * 4), "l"(source),
                         "r"(i < valid ? 4 : 0));
        }
    }
}

// Starts to copy both tiles of one step of K. Each operand is copied along its own contiguous index.
__device__ void copy_tiles(Stage& stage, const float* A, const float* B, int64_t M, int64_t K, int64_t N,
                           int64_t first_m, int64_t first_n, int64_t first_k, bool aligned_A, bool aligned_B) {
#pragma unroll
    for (int i = threadIdx.x; i < TILE_K * TILE_M / 4; i += THREADS) {
        const int row = i / (TILE_M / 4), col = i % (TILE_M / 4) * 4;
        const int64_t k = first_k + row, m = first_m + col;
        copy4(&stage.A[row][col], A + k * M + m, k < K ? M - m : 0, A, aligned_A);
    }
#pragma unroll
    for (int i = threadIdx.x; i < TILE_N * TILE_K / 4; i += THREADS) {
        const int row = i / (TILE_K / 4), col = i % (TILE_K / 4) * 4;
        const int64_t n = first_n + row, k = first_k + col;
        copy4(&stage.B[row][col], B + n * K + k, n < N ? K - k : 0, B, aligned_B);
    }
}

__device__ void multiply_add(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

__global__ void __launch_bounds__(THREADS, 1)
float64_tensor_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                      int64_t M, int64_t K, int64_t N, bool aligned_A, bool aligned_B) {
    extern __shared__ __align__(16) unsigned char memory[];
    Stage* stages = reinterpret_cast<Stage*>(memory);

    const int64_t tiles_n = (N + TILE_N - 1) / TILE_N;
    const int64_t first_m = blockIdx.x / tiles_n * TILE_M;
    const int64_t first_n = blockIdx.x % tiles_n * TILE_N;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int row = warp / 4 * WARP_M, col = warp % 4 * WARP_N;
    double sum[ROWS][COLS][4] = {};

    const int64_t steps = (K + TILE_K - 1) / TILE_K;
    for (int64_t step = 0; step < STAGES - 1; ++step) {
        if (step < steps)
            copy_tiles(stages[step], A, B, M, K, N, first_m, first_n, step * TILE_K, aligned_A, aligned_B);
        asm volatile("cp.async.commit_group;");
    }
    for (int64_t step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // the tiles of this step have arrived, and those of the step before are no longer read
        const int64_t later = step + STAGES - 1;
        if (later < steps)
            copy_tiles(stages[later % STAGES], A, B, M, K, N, first_m, first_n, later * TILE_K, aligned_A, aligned_B);
        asm volatile("cp.async.commit_group;");
        const Stage& stage = stages[step % STAGES];

#pragma unroll
        for (int k = t; k < TILE_K; k += MMA_K) {
            double a[ROWS][4], b[COLS][2];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e) a[i][e] = stage.A[k + e / 2 * 4][row + i * MMA_M + g + e % 2 * 8];
#pragma unroll
            for (int j = 0; j < COLS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) b[j][e] = stage.B[col + j * MMA_N + g][k + e * 4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j) multiply_add(sum[i][j], a[i], b[j]);
        }
    }

#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int64_t m = first_m + row + i * MMA_M + g + e / 2 * 8;
                const int64_t n = first_n + col + j * MMA_N + 2 * t + e % 2;
                if (m < M && n < N) C[m * N + n] = static_cast<float>(sum[i][j][e]);
            }
}

cudaError_t launch_float64_tensor(const float* A, const float* B, float* C, int64_t M, int64_t K, int64_t N,
                                  cudaStream_t stream) {
    const int64_t blocks = (M + TILE_M - 1) / TILE_M * ((N + TILE_N - 1) / TILE_N);
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;  // more than a grid can have
    const bool aligned_A = M % 4 == 0 && reinterpret_cast<uintptr_t>(A) % 16 == 0;
    const bool aligned_B = K % 4 == 0 && reinterpret_cast<uintptr_t>(B) % 16 == 0;
    constexpr int bytes = STAGES * sizeof(Stage);
    const cudaError_t error =
        cudaFuncSetAttribute(float64_tensor_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    float64_tensor_kernel<<<static_cast<unsigned>(blocks), THREADS, bytes, stream>>>(A, B, C, M, K, N, aligned_A,
                                                                                     aligned_B);
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
cudaError_t launch_float64_tensor(const float* A, const float* B, float* C, int64_t M, int64_t K, int64_t N,
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
    C10_CUDA_CHECK(launch_float64_tensor(A.const_data_ptr<float>(), B.const_data_ptr<float>(),
                                         C.mutable_data_ptr<float>(), M, K, N, c10::cuda::getCurrentCUDAStream()));
    return C;
}
"""

ops = load_inline(
    name="matmul_tt_float64_tensor",
    cpp_sources=[CPP_SOURCE],
    cuda_sources=[CUDA_SOURCE],
    functions=["matmul_tt"],
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return ops.matmul_tt(A, B)
