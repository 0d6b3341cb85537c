"""Each number is split into two scaled halves, and three half-precision products by wgmma give float32-class accuracy.

Rung 7 of the ladder: tensor cores do 15 times as many multiply-adds in half precision as plain cores do in float32, so
three of them instead of one still leave a factor of five.

1. `split_kernel` reads each 128 x 128 block of A and B once. It finds the largest magnitude, scales the block by a
   power of two to just below 2^15, and splits each number x into hi = half(x) and lo = half((x - hi) 2^11): 22 bits.
   It writes tiles of 128 rows x 64 k, hi and lo, in the order that wgmma reads from shared memory (rows of 128 bytes
   whose 16-byte chunks are swizzled). So A is transposed here, and a tile arrives by one bulk copy without a tensor
   map.
2. `multiply_kernel` computes a tile of 128 x 128 per block. One thread copies tiles into a ring of three stages; two
   warpgroups multiply 64 rows each. `main` sums hi hi, `corr` sums hi lo and lo hi. Two neighbouring blocks form a
   cluster: they need the same tile of B, of which each fetches a half for both.
3. Tensor cores add with 25 bits and cut off the rest. So after every 128 k, which is also where the scales change, the
   partial sums are added to `total` in float32, rounded to nearest.

Hypothesis: 412 GFLOP at the 790 TFLOPS that tensor cores keep up in half precision take 0.52 ms. The split moves
403 MB, 0.1 ms. Goal: 0.70 ms for both, a quarter of cuBLAS SGEMM. In a simulation of the hardware's sums with K = 8192,
the relative error is 2.5e-7 for normal inputs and 4.7e-7 for uniform ones, where a chain of float32 multiply-adds has
1.6e-6 and 1.2e-6.

Limits: numbers more than 2^29 times smaller than the largest of their 128 x 128 block lose relative accuracy, which
shows where rows of one block differ that much. An infinite input gives NaN. It needs a GPU of compute capability 9.0
and refuses any other.

Measured on an H200 at full size: 0.737 ms, 3.76 times as fast as cuBLAS SGEMM: 0.10 ms for the split and 0.62 ms for
the product. Relative error against float64: 2.5e-7 for normal and 4.7e-7 for uniform inputs, where cuBLAS SGEMM has
1.6e-6 and 1.2e-6.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>

constexpr int TILE = 128;        // rows of A^T, or of B, in a tile; the tiles of C are square
constexpr int BLOCK_K = 128;     // k that share a scale and a partial sum
constexpr int STAGE_K = 64;      // k of a stage: 128 bytes, the width of the swizzle
constexpr int STEPS = BLOCK_K / STAGE_K;  // stages of a partial sum
constexpr int MMA_K = 16;        // k of one wgmma
constexpr int HALF_BYTES = TILE * STAGE_K * 2;  // hi or lo of a tile
constexpr int TILE_BYTES = 2 * HALF_BYTES;      // hi, then lo
constexpr int STAGE_BYTES = 2 * TILE_BYTES;     // a tile of A, then one of B
constexpr int STAGES = 3;
constexpr int CLUSTER = 2;       // blocks that share tiles of B: 1 or 2
constexpr int CONSUMERS = 2;     // warpgroups that multiply
constexpr int WARPGROUP = 128;   // threads
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int TOP = 14;          // the largest magnitude of a scaled block is in [2^TOP, 2^(TOP + 1))
constexpr int LO_SHIFT = 11;     // lo is multiplied by 2^LO_SHIFT

// Returns 2^exponent, for exponents from -126 to 127.
__device__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// ---- splitting

// Returns two floats rounded to halves, the first in the lower half of the register.
__device__ uint32_t to_halves(float first, float second) {
    uint32_t out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
    return out;
}

__device__ void to_floats(uint32_t halves, float& first, float& second) {
    asm("{.reg .b16 lower, upper; mov.b32 {lower, upper}, %2; cvt.f32.f16 %0, lower; cvt.f32.f16 %1, upper;}"
        : "=f"(first), "=f"(second)
        : "r"(halves));
}

constexpr int SPLIT_THREADS = 256;
constexpr int CHUNK = 8;  // k of 16 bytes of halves
constexpr int CHUNKS = TILE * BLOCK_K / CHUNK / SPLIT_THREADS;  // per thread

struct Matrix {
    const float* data;
    int64_t rows, K;              // of the matrix whose rows are contiguous along k in `tiles`
    int64_t row_stride, k_stride;  // in floats
    bool vector;                  // k_stride is 1, and each row begins at a multiple of 16 bytes
    unsigned char* tiles;         // [tile of rows][stage of k][hi, lo][row][swizzled k]
    int* exponents;               // [tile of rows][block of k]: x is a scaled number times 2^exponent
};

// Loads `values[0 to 7]`, k to k + 7 of one row. What is outside the matrix is 0.
__device__ void load_chunk(float (&values)[CHUNK], const Matrix& matrix, int64_t row, int64_t k) {
    const float* from = matrix.data + row * matrix.row_stride + k * matrix.k_stride;
    if (matrix.vector && row < matrix.rows && k + CHUNK <= matrix.K) {
        const float4 low = *reinterpret_cast<const float4*>(from);
        const float4 high = *reinterpret_cast<const float4*>(from + 4);
        values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
        values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        values[i] = row < matrix.rows && k + i < matrix.K ? from[i * matrix.k_stride] : 0.0f;
}

// Returns the largest value of a block's threads.
__device__ uint32_t largest(uint32_t value) {
    __shared__ uint32_t of_warp[SPLIT_THREADS / 32];
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (int i = 0; i < SPLIT_THREADS / 32; ++i) value = of_warp[i] > value ? of_warp[i] : value;
    return value;
}

// One block splits TILE rows x BLOCK_K k. If rows are contiguous, neighbouring threads take neighbouring rows,
// otherwise neighbouring k.
__global__ void __launch_bounds__(SPLIT_THREADS) split_kernel(Matrix matrix, int64_t blocks_k) {
    extern __shared__ __align__(16) unsigned char tiles[];  // STEPS tiles of TILE_BYTES
    const int64_t tile = blockIdx.x / blocks_k, block_k = blockIdx.x % blocks_k;
    const bool along_rows = matrix.row_stride == 1;

    float values[CHUNKS][CHUNK];
    uint32_t most = 0;  // magnitudes compare as their bits do
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const int at = threadIdx.x + i * SPLIT_THREADS;
        const int row = along_rows ? at % TILE : at / (BLOCK_K / CHUNK);
        const int chunk = along_rows ? at / TILE : at % (BLOCK_K / CHUNK);
        load_chunk(values[i], matrix, tile * TILE + row, block_k * BLOCK_K + chunk * CHUNK);
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) {
            const uint32_t bits = __float_as_uint(values[i][j]) & 0x7FFFFFFFu;
            most = bits > most ? bits : most;
        }
    }
    most = largest(most);

    // A block of zeros or of tiny numbers is scaled by the largest power of two there is. One with infinity or NaN
    // gives NaN whatever the scale is.
    int exponent = static_cast<int>(most >> 23) - 127 - TOP;
    if (exponent < -126) exponent = -126;
    const float scale = power_of_two(-exponent);
    if (threadIdx.x == 0) matrix.exponents[blockIdx.x] = exponent;

#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const int at = threadIdx.x + i * SPLIT_THREADS;
        const int row = along_rows ? at % TILE : at / (BLOCK_K / CHUNK);
        const int chunk = along_rows ? at / TILE : at % (BLOCK_K / CHUNK);
        uint32_t hi[CHUNK / 2], lo[CHUNK / 2];
#pragma unroll
        for (int j = 0; j < CHUNK / 2; ++j) {
            const float first = values[i][2 * j] * scale, second = values[i][2 * j + 1] * scale;
            float first_hi, second_hi;
            hi[j] = to_halves(first, second);
            to_floats(hi[j], first_hi, second_hi);
            lo[j] = to_halves((first - first_hi) * (1 << LO_SHIFT), (second - second_hi) * (1 << LO_SHIFT));
        }
        constexpr int ROW_CHUNKS = STAGE_K / CHUNK;
        unsigned char* to = tiles + chunk / ROW_CHUNKS * TILE_BYTES + row * (STAGE_K * 2) +
                            ((chunk % ROW_CHUNKS) ^ (row % 8)) * 16;
        *reinterpret_cast<uint4*>(to) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
        *reinterpret_cast<uint4*>(to + HALF_BYTES) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
    }
    __syncthreads();

    uint4* out = reinterpret_cast<uint4*>(matrix.tiles + blockIdx.x * int64_t(STEPS * TILE_BYTES));
#pragma unroll
    for (int i = threadIdx.x; i < STEPS * TILE_BYTES / 16; i += SPLIT_THREADS)
        out[i] = reinterpret_cast<const uint4*>(tiles)[i];
}

cudaError_t launch_split(const float* data, int64_t rows, int64_t K, int64_t row_stride, int64_t k_stride,
                         int64_t tiles, int64_t blocks_k, void* split, int* exponents, cudaStream_t stream) {
    if (tiles * blocks_k > INT32_MAX) return cudaErrorInvalidConfiguration;  // more than a grid can have
    const bool vector = k_stride == 1 && row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
    const Matrix matrix = {data, rows, K, row_stride, k_stride, vector, static_cast<unsigned char*>(split), exponents};
    constexpr int bytes = STEPS * TILE_BYTES;
    const cudaError_t error = cudaFuncSetAttribute(split_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    split_kernel<<<static_cast<unsigned>(tiles * blocks_k), SPLIT_THREADS, bytes, stream>>>(matrix, blocks_k);
    return cudaGetLastError();
}

// ---- multiplying

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void init_barrier(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Waits until the phase of this parity has completed.
__device__ void wait(uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra.uni finished;\n"
        "bra.uni again;\n"
        "finished:\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Arrives at the barrier at the same place in the shared memory of block `rank` of the cluster.
__device__ void arrive_at(uint64_t* barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}

// Copies to this block's shared memory; the barrier counts the bytes.
__device__ void bulk_copy(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// Copies to the same place in each block of the cluster; the barrier of each block counts the bytes.
__device__ void bulk_copy_to_all(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
        ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)),
        "h"(static_cast<uint16_t>((1 << CLUSTER) - 1))
        : "memory");
}

__device__ int cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

// A barrier of all threads of the cluster.
__device__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Describes a matrix in shared memory to wgmma: rows of 128 bytes, swizzled, 1024 bytes from one group of eight rows to
// the next.
__device__ uint64_t descriptor(const void* matrix) {
    return (shared_address(matrix) & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// d (64 x 128) = A (64 x 16) B (128 x 16)^T, plus d unless `first`. Each thread of the warpgroup has 64 elements of d.
__device__ void wgmma(float (&d)[64], uint64_t A, uint64_t B, bool first) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.eq.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, add, 1, 1, 0, 0;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(A), "l"(B), "r"(static_cast<int>(first)));
}
__device__ void begin_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ void wait_wgmma() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Issues the three products of one stage for the 64 rows of a warpgroup.
__device__ void multiply_stage(float (&main)[64], float (&corr)[64], const unsigned char* stage, int warpgroup,
                               bool first) {
    const unsigned char* rows = stage + warpgroup * (TILE / CONSUMERS) * (STAGE_K * 2);
    const uint64_t A_hi = descriptor(rows), A_lo = descriptor(rows + HALF_BYTES);
    const uint64_t B_hi = descriptor(stage + TILE_BYTES), B_lo = descriptor(stage + TILE_BYTES + HALF_BYTES);
#pragma unroll
    for (int k = 0; k < STAGE_K / MMA_K; ++k) {
        const int along = k * MMA_K * 2 >> 4;  // descriptors count 16 bytes
        wgmma(main, A_hi + along, B_hi + along, first && k == 0);
        wgmma(corr, A_hi + along, B_lo + along, first && k == 0);
        wgmma(corr, A_lo + along, B_hi + along, false);
    }
    commit_wgmma();
}

struct Ring {
    uint64_t full[STAGES];   // the tiles of this block have arrived
    uint64_t empty[STAGES];  // all multiplying warps of the cluster have read them
};

// One thread fills the ring.
__device__ void produce(unsigned char* stages, Ring& ring, const unsigned char* A, const unsigned char* B, int steps,
                        int rank) {
    int stage = 0;
    uint32_t parity = 1;  // of the phase before the first, which counts as completed: all stages are empty
    for (; steps > 0; --steps) {
        unsigned char* to = stages + stage * STAGE_BYTES;
        wait(&ring.empty[stage], parity);
        expect_bytes(&ring.full[stage], STAGE_BYTES);
        bulk_copy(to, A, TILE_BYTES, &ring.full[stage]);
        if constexpr (CLUSTER == 1) {
            bulk_copy(to + TILE_BYTES, B, TILE_BYTES, &ring.full[stage]);
        } else {
            constexpr int share = TILE_BYTES / CLUSTER;
            bulk_copy_to_all(to + TILE_BYTES + rank * share, B + rank * share, share, &ring.full[stage]);
        }
        A += TILE_BYTES;
        B += TILE_BYTES;
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
}

// Says to each block of the cluster that this warp has read the stage.
__device__ void release(Ring& ring, int stage) {
    if (threadIdx.x % 32 < CLUSTER) arrive_at(&ring.empty[stage], threadIdx.x % 32);
}

// C (M, N) from split tiles. Neighbouring blocks of a cluster have neighbouring tiles of rows, and the same columns.
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
multiply_kernel(const unsigned char* __restrict__ A, const int* __restrict__ exponents_A,
                const unsigned char* __restrict__ B, const int* __restrict__ exponents_B, float* __restrict__ C,
                int64_t M, int64_t N, int64_t tiles_n, int blocks_k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ Ring ring;
    unsigned char* stages = memory + (1024 - shared_address(memory) % 1024) % 1024;

    const int rank = CLUSTER == 1 ? 0 : cluster_rank();
    const int64_t pair = blockIdx.x / CLUSTER;
    const int64_t tile_m = pair / tiles_n * CLUSTER + rank, tile_n = pair % tiles_n;
    const int64_t panel = blocks_k * (STEPS * TILE_BYTES);  // the bytes of a tile of rows over all k

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(&ring.full[i], 1);
            init_barrier(&ring.empty[i], CONSUMERS * (WARPGROUP / 32) * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    sync_cluster();

    const int warpgroup = static_cast<int>(threadIdx.x) / WARPGROUP - 1;
    if (warpgroup < 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0)
            produce(stages, ring, A + tile_m * panel, B + tile_n * panel, blocks_k * STEPS, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        float total[64], main[64], corr[64];
#pragma unroll
        for (int i = 0; i < 64; ++i) total[i] = 0.0f;

        exponents_A += tile_m * blocks_k;
        exponents_B += tile_n * blocks_k;
        uint32_t stage = 0, parity = 0;
        for (int block = 0; block < blocks_k; ++block) {
            const int exponent = exponents_A[block] + exponents_B[block];
            const uint32_t stage_0 = stage;
            wait(&ring.full[stage], parity);
            begin_wgmma();
            multiply_stage(main, corr, stages + stage * STAGE_BYTES, warpgroup, true);
            if (++stage == STAGES) stage = 0, parity ^= 1;
            const uint32_t stage_1 = stage;
            wait(&ring.full[stage], parity);
            begin_wgmma();
            multiply_stage(main, corr, stages + stage * STAGE_BYTES, warpgroup, false);
            if (++stage == STAGES) stage = 0, parity ^= 1;
            wait_wgmma<1>();
            release(ring, stage_0);
            wait_wgmma<0>();
            release(ring, stage_1);

            // Two factors, because 2^exponent itself may not fit a float. The second rounds only a denormal number.
            const float scale_0 = power_of_two(exponent / 2), scale_1 = power_of_two(exponent - exponent / 2);
#pragma unroll
            for (int i = 0; i < 64; ++i) {
                const float sum = corr[i] * (1.0f / (1 << LO_SHIFT)) + main[i];
                total[i] += sum * scale_0 * scale_1;
            }
        }

        // Lane 4 g + t of warp w has rows 16 w + g and 16 w + g + 8, and columns 8 j + 2 t and 8 j + 2 t + 1.
        const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
        const int64_t first_m = tile_m * TILE + warpgroup * (TILE / CONSUMERS) + warp * 16 + lane / 4;
        const int64_t first_n = tile_n * TILE + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 64; i += 2) {
            const int64_t m = first_m + i / 2 % 2 * 8, n = first_n + i / 4 * 8;
            float* to = C + m * N + n;
            if (m < M && n + 1 < N && N % 2 == 0) {
                *reinterpret_cast<float2*>(to) = make_float2(total[i], total[i + 1]);
            } else if (m < M) {
                if (n < N) to[0] = total[i];
                if (n + 1 < N) to[1] = total[i + 1];
            }
        }
    }
    sync_cluster();  // a block's shared memory must last as long as others write to it
}

cudaError_t launch_multiply(const void* A, const int* exponents_A, const void* B, const int* exponents_B, float* C,
                            int64_t M, int64_t N, int64_t tiles_m, int64_t tiles_n, int64_t blocks_k,
                            cudaStream_t stream) {
    if (tiles_m * tiles_n > INT32_MAX || blocks_k > INT32_MAX / STEPS)
        return cudaErrorInvalidConfiguration;  // more than a grid can have, or than an int counts
    constexpr int bytes = STAGES * STAGE_BYTES + 1024;  // stages begin at a multiple of 1024
    const cudaError_t error = cudaFuncSetAttribute(multiply_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    multiply_kernel<<<static_cast<unsigned>(tiles_m * tiles_n), THREADS, bytes, stream>>>(
        static_cast<const unsigned char*>(A), exponents_A, static_cast<const unsigned char*>(B), exponents_B, C, M, N,
        tiles_n, static_cast<int>(blocks_k));
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
cudaError_t launch_split(const float* data, int64_t rows, int64_t K, int64_t row_stride, int64_t k_stride,
                         int64_t tiles, int64_t blocks_k, void* split, int* exponents, cudaStream_t stream);
cudaError_t launch_multiply(const void* A, const int* exponents_A, const void* B, const int* exponents_B, float* C,
                            int64_t M, int64_t N, int64_t tiles_m, int64_t tiles_n, int64_t blocks_k,
                            cudaStream_t stream);

constexpr int64_t TILE = 128;    // as in the CUDA source, in rows and in k
constexpr int64_t CLUSTER = 2;   // the number of tiles along M is a multiple of this
constexpr int64_t SPLIT_BYTES = 4;  // two halves for each number

static void check_device() {
    int device = 0, major = 0, minor = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    TORCH_CHECK(major == 9 && minor == 0,
                "fp16x3_wgmma needs a GPU of compute capability 9.0 (H100, H200, GH200), because wgmma exists on no "
                "other; this one has ", major, ".", minor);
}

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
    check_device();
    A = A.contiguous();
    B = B.contiguous();
    const int64_t K = A.size(0), M = A.size(1), N = B.size(0);
    const int64_t tiles_m = (M + CLUSTER * TILE - 1) / (CLUSTER * TILE) * CLUSTER;
    const int64_t tiles_n = (N + TILE - 1) / TILE, blocks_k = (K + TILE - 1) / TILE;
    auto C = at::empty({M, N}, A.options());
    const auto split_A = at::empty({tiles_m * blocks_k * TILE * TILE * SPLIT_BYTES}, A.options().dtype(at::kByte));
    const auto split_B = at::empty({tiles_n * blocks_k * TILE * TILE * SPLIT_BYTES}, A.options().dtype(at::kByte));
    const auto exponents_A = at::empty({tiles_m * blocks_k}, A.options().dtype(at::kInt));
    const auto exponents_B = at::empty({tiles_n * blocks_k}, A.options().dtype(at::kInt));

    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    C10_CUDA_CHECK(launch_split(A.const_data_ptr<float>(), M, K, 1, M, tiles_m, blocks_k,
                                split_A.mutable_data_ptr(), exponents_A.mutable_data_ptr<int>(), stream));
    C10_CUDA_CHECK(launch_split(B.const_data_ptr<float>(), N, K, K, 1, tiles_n, blocks_k,
                                split_B.mutable_data_ptr(), exponents_B.mutable_data_ptr<int>(), stream));
    C10_CUDA_CHECK(launch_multiply(split_A.const_data_ptr(), exponents_A.const_data_ptr<int>(),
                                   split_B.const_data_ptr(), exponents_B.const_data_ptr<int>(),
                                   C.mutable_data_ptr<float>(), M, N, tiles_m, tiles_n, blocks_k, stream));
    return C;
}
"""

ops = load_inline(
    name="matmul_tt_fp16x3_wgmma",
    cpp_sources=[CPP_SOURCE],
    cuda_sources=[CUDA_SOURCE],
    functions=["matmul_tt"],
    no_implicit_headers=True,
    extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"],  # wgmma is not part of plain sm_90
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return ops.matmul_tt(A, B)
