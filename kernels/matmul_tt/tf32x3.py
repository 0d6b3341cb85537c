"""Each number is split into two TF32 parts, and three tensor core products of the parts give float32-class accuracy.

Rung 6 of the ladder. TF32 keeps 11 significant bits, so x = big + small, where big is x rounded to TF32 and small is
the rest. Then a b = big big + big small + small big; the product of the small parts is below the accuracy of float32
and left out. Tensor cores add with 25 bits and cut off the rest, so the error of a long sum would grow with K: after
every 128 k the partial sum is added to a float32 sum that is rounded to nearest (`total`).

Hypothesis: TF32 by `mma.sync` reaches about 300 TFLOPS on an H200. Three products are 412 GFLOP: 1.4 ms, half of cuBLAS
SGEMM. Splitting costs four instructions for each value in registers, which run beside the tensor cores. In a simulation
of the hardware's sums with K = 8192, the relative error is 3.9e-7 for normal inputs and 6.2e-7 for uniform ones, where
a chain of float32 multiply-adds has 1.6e-6 and 1.2e-6.

Limits: an infinite input gives NaN, because Inf - Inf is the small part. So does a finite one within 2^-11 of the
largest float32, which is rounded up to infinity. Parts below 2^-126 lose bits.

Measured on an H200 at full size: 2.75 ms, as fast as cuBLAS SGEMM and half as fast as hoped.
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
constexpr int TILE_K = 32;
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
constexpr int PROMOTE_K = 128;  // partial sums are this long
static_assert(PROMOTE_K % TILE_K == 0, "partial sums end with a step");

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

struct Split {
    uint32_t big, small;
};
// TF32 is float32 without the lower 13 bits, which tensor cores ignore. `big` is rounded to nearest, so `small` has
// either sign, and what is cut off from it has none on average.
__device__ Split split(float x) {
    const uint32_t big = (__float_as_uint(x) + 0x1000u) & ~0x1FFFu;
    return {big, __float_as_uint(x - __uint_as_float(big))};
}

__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(THREADS, 1)
tf32x3_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
              int64_t M, int64_t K, int64_t N, bool aligned_A, bool aligned_B) {
    extern __shared__ __align__(16) unsigned char memory[];
    Stage* stages = reinterpret_cast<Stage*>(memory);

    const int64_t tiles_n = (N + TILE_N - 1) / TILE_N;
    const int64_t first_m = blockIdx.x / tiles_n * TILE_M;
    const int64_t first_n = blockIdx.x % tiles_n * TILE_N;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int row = warp / 4 * WARP_M, col = warp % 4 * WARP_N;
    float total[ROWS][COLS][4] = {}, sum[ROWS][COLS][4] = {};

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
            uint32_t big_a[ROWS][4], small_a[ROWS][4], big_b[COLS][2], small_b[COLS][2];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const Split part = split(stage.A[k + e / 2 * 4][row + i * MMA_M + g + e % 2 * 8]);
                    big_a[i][e] = part.big, small_a[i][e] = part.small;
                }
#pragma unroll
            for (int j = 0; j < COLS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const Split part = split(stage.B[col + j * MMA_N + g][k + e * 4]);
                    big_b[j][e] = part.big, small_b[j][e] = part.small;
                }
            // One kind of product after the other, so that no instruction waits for the sum of the one before it.
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j) multiply_add(sum[i][j], small_a[i], big_b[j]);
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j) multiply_add(sum[i][j], big_a[i], small_b[j]);
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j) multiply_add(sum[i][j], big_a[i], big_b[j]);
        }

        if ((step + 1) % (PROMOTE_K / TILE_K) == 0 || step + 1 == steps) {
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        total[i][j][e] += sum[i][j][e];
                        sum[i][j][e] = 0.0f;
                    }
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
                if (m < M && n < N) C[m * N + n] = total[i][j][e];
            }
}

cudaError_t launch_tf32x3(const float* A, const float* B, float* C, int64_t M, int64_t K, int64_t N,
                          cudaStream_t stream) {
    const int64_t blocks = (M + TILE_M - 1) / TILE_M * ((N + TILE_N - 1) / TILE_N);
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;  // more than a grid can have
    const bool aligned_A = M % 4 == 0 && reinterpret_cast<uintptr_t>(A) % 16 == 0;
    const bool aligned_B = K % 4 == 0 && reinterpret_cast<uintptr_t>(B) % 16 == 0;
    constexpr int bytes = STAGES * sizeof(Stage);
    const cudaError_t error =
        cudaFuncSetAttribute(tf32x3_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    tf32x3_kernel<<<static_cast<unsigned>(blocks), THREADS, bytes, stream>>>(A, B, C, M, K, N, aligned_A,
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
cudaError_t launch_tf32x3(const float* A, const float* B, float* C, int64_t M, int64_t K, int64_t N,
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
    C10_CUDA_CHECK(launch_tf32x3(A.const_data_ptr<float>(), B.const_data_ptr<float>(),
                                 C.mutable_data_ptr<float>(), M, K, N, c10::cuda::getCurrentCUDAStream()));
    return C;
}
"""

ops = load_inline(
    name="matmul_tt_tf32x3",
    cpp_sources=[CPP_SOURCE],
    cuda_sources=[CUDA_SOURCE],
    functions=["matmul_tt"],
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return ops.matmul_tt(A, B)
