// Instructions that came with Hopper, one kernel each. A GPU runs this file, too (sm_90a).
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

#include <string>
#include <vector>

namespace cg = cooperative_groups;

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }
__device__ void init(uint64_t* barrier, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)); }
__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ void arrive(uint64_t* barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"); }
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "LAB_WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE_%=;\n"
      "bra LAB_WAIT_%=;\n"
      "DONE_%=:\n}" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}
__device__ void load(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
__device__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ------------------------------------------------------------------------------------------------- products

// Writes the number at (row, k) of a matrix to shared memory, where wgmma expects it. `wide` is the width of the swizzle in
// bytes; 16 for none. The rows of a transposed matrix are neighbours.
template <class T>
__device__ void place(unsigned char* matrix, int row, int k, T value, int wide, bool transposed) {
  const int at = static_cast<int>(k * sizeof(T));
  int offset;
  if (transposed && wide == 16) offset = row / 8 * 256 + k / 8 * 128 + k % 8 * 16 + row % 8 * 2;
  else if (transposed) offset = row / 8 % (wide / 16) * 16 + row / 8 / (wide / 16) * (16 * wide) + k % 8 * wide + k / 8 * (8 * wide) + row % 8 * 2;
  else if (wide == 16) offset = row / 8 * 256 + at / 16 * 128 + row % 8 * 16 + at % 16;
  else offset = row * wide + at;
  offset ^= offset >> 3 & (wide - 16);
  *reinterpret_cast<T*>(matrix + offset) = value;
}
__device__ uint64_t descriptor(const void* matrix, int wide, bool transposed) {
  const uint64_t mode = wide == 128 ? 1 : wide == 64 ? 2 : wide == 32 ? 3 : 0;
  uint64_t leading, stride;
  if (wide == 16) leading = 128, stride = 256;
  else if (transposed) leading = 16 * wide, stride = 8 * wide;
  else leading = 16, stride = 8 * wide;
  return (shared_address(matrix) & 0x3FFFF) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62;
}

__device__ void product_half(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_half_ta(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 1, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_half_tb(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_half_negative(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, -1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_bfloat16(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_tf32(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_e4m3(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_e5m2(float (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void product_int8(int (&d)[8], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7])
      : "l"(a), "l"(b), "r"(adds));
}

__device__ void product_half_registers(float (&d)[8], const uint32_t (&a)[4], uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}
__device__ void product_half_sum(uint32_t (&d)[4], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "l"(a), "l"(b), "r"(adds));
}
__device__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ void wait_product() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

enum Kind { HALF, HALF_TA, HALF_TB, NEGATIVE, BFLOAT16, TF32, E4M3, E5M2, INT8, REGISTERS, HALF_SUM, NO_WAIT };

// C (64 x 16) += A (64 x K) B (16 x K)^T for K of 32 bytes, by one warpgroup.
template <class T>
__global__ void product_kernel(const T* A, const T* B, float* C, int kind, int wide, int repeats) {
  __shared__ alignas(1024) unsigned char a[64 * 128], b[64 * 128];
  constexpr int K = 32 / sizeof(T);
  for (int i = threadIdx.x; i < 64 * K; i += 128) place(a, i / K, i % K, A[i], wide, kind == HALF_TA);
  for (int i = threadIdx.x; i < 16 * K; i += 128) place(b, i / K, i % K, B[i], wide, kind == HALF_TB);
  fence_async();
  __syncthreads();
  const uint64_t of_a = descriptor(a, wide, kind == HALF_TA), of_b = descriptor(b, wide, kind == HALF_TB);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float d[8] = {};
  int sums[8] = {};
  uint32_t halves[4] = {}, registers[4] = {};
  if (kind == REGISTERS)
    for (int i = 0; i < 4; ++i) {
      const T pair[2] = {A[(16 * warp + g + i % 2 * 8) * K + i / 2 * 8 + 2 * t], A[(16 * warp + g + i % 2 * 8) * K + i / 2 * 8 + 2 * t + 1]};
      memcpy(&registers[i], pair, 4);
    }
  begin();
  for (int i = 0; i < repeats; ++i) {
    switch (kind) {
      case HALF: case NO_WAIT: product_half(d, of_a, of_b, i); break;
      case HALF_TA: product_half_ta(d, of_a, of_b, i); break;
      case HALF_TB: product_half_tb(d, of_a, of_b, i); break;
      case NEGATIVE: product_half_negative(d, of_a, of_b, i); break;
      case BFLOAT16: product_bfloat16(d, of_a, of_b, i); break;
      case TF32: product_tf32(d, of_a, of_b, i); break;
      case E4M3: product_e4m3(d, of_a, of_b, i); break;
      case E5M2: product_e5m2(d, of_a, of_b, i); break;
      case INT8: product_int8(sums, of_a, of_b, i); break;
      case REGISTERS: product_half_registers(d, registers, of_b, i); break;
      default: product_half_sum(halves, of_a, of_b, i);
    }
    commit();
  }
  if (kind != NO_WAIT) wait_product<0>();
  for (int i = 0; i < 8; ++i) {
    const int row = 16 * warp + g + i / 2 % 2 * 8, column = i / 4 * 8 + 2 * t + i % 2;
    const uint32_t bits = halves[i / 2] >> i % 2 * 16;
    C[row * 16 + column] = kind == INT8 ? static_cast<float>(sums[i]) : kind == HALF_SUM ? __half2float(__ushort_as_half(static_cast<unsigned short>(bits))) : d[i];
  }
}

torch::Tensor product(torch::Tensor A, torch::Tensor B, int kind, int wide, int repeats) {
  auto C = torch::empty({64, 16}, A.options().dtype(torch::kFloat));
  float* c = C.data_ptr<float>();
  if (A.element_size() == 4) product_kernel<<<1, 128>>>(static_cast<const float*>(A.data_ptr()), static_cast<const float*>(B.data_ptr()), c, kind, wide, repeats);
  else if (A.element_size() == 2) product_kernel<<<1, 128>>>(static_cast<const __half*>(A.data_ptr()), static_cast<const __half*>(B.data_ptr()), c, kind, wide, repeats);
  else product_kernel<<<1, 128>>>(static_cast<const uint8_t*>(A.data_ptr()), static_cast<const uint8_t*>(B.data_ptr()), c, kind, wide, repeats);
  return C;
}

// ---------------------------------------------------------------------------------------------- bulk copies

// y = 2 x, in pieces of 1024 numbers through a ring of two buffers. One thread loads, and stores of bulk groups write.
__global__ void doubled_kernel(const float* x, float* y, int pieces) {
  __shared__ alignas(128) float in[2][1024], out[1024];
  __shared__ uint64_t full[2], empty[2];
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) init(&full[i], 1), init(&empty[i], 128);
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128)
      for (int i = 0; i < pieces; ++i) {
        wait(&empty[i % 2], i / 2 % 2 ^ 1);
        expect(&full[i % 2], 4096);
        load(in[i % 2], x + i * 1024, 4096, &full[i % 2]);
      }
    return;
  }
  for (int i = 0; i < pieces; ++i) {
    wait(&full[i % 2], i / 2 % 2);
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    for (int j = threadIdx.x; j < 1024; j += 128) out[j] = 2 * in[i % 2][j];
    arrive(&empty[i % 2]);
    fence_async();
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;" ::"l"(y + i * 1024), "r"(shared_address(out)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
torch::Tensor doubled(torch::Tensor x) {
  auto y = torch::empty_like(x);
  doubled_kernel<<<1, 160>>>(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.numel() / 1024));
  return y;
}

// The sum of the rows of x, which reductions in bulk add up.
__global__ void column_sums_kernel(const float* x, float* sums, int columns) {
  extern __shared__ __align__(128) float row[];
  for (int i = threadIdx.x; i < columns; i += blockDim.x) row[i] = x[blockIdx.x * columns + i];
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(sums), "r"(shared_address(row)), "r"(columns * 4) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
torch::Tensor column_sums(torch::Tensor x) {
  auto sums = torch::zeros({x.size(1)}, x.options());
  column_sums_kernel<<<x.size(0), 32, x.size(1) * 4>>>(x.data_ptr<float>(), sums.data_ptr<float>(), static_cast<int>(x.size(1)));
  return sums;
}

// -------------------------------------------------------------------------------------------------- tensors

using Encode = decltype(&cuTensorMapEncodeTiled);
// The map of a matrix with boxes of 16 rows of 32 numbers.
CUtensorMap map_of(torch::Tensor x, CUtensorMapSwizzle swizzle, bool nan, int box_columns = 32, int step = 1) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  TORCH_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found) == cudaSuccess);
  TORCH_CHECK(found == cudaDriverEntryPointSuccess && function);
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(x.size(1)), static_cast<cuuint64_t>(x.size(0))}, strides[] = {static_cast<cuuint64_t>(x.stride(0)) * 4};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), 16}, steps[] = {1, static_cast<cuuint32_t>(step)};
  const CUresult error = reinterpret_cast<Encode>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x.data_ptr(), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(error == CUDA_SUCCESS, "cuTensorMapEncodeTiled: ", static_cast<int>(error));
  return map;
}

// Copies the box at (row, column) to `box` as it lies in shared memory, and back to another tensor at the same place, where
// it is added if `back` is 2; 0: it is not copied back.
__global__ void box_kernel(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, float* box, int row, int column, int bytes, int back) {
  __shared__ alignas(1024) float tile[16 * 32];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) init(&full, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&full, bytes);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)), "l"(&from), "r"(column),
                 "r"(row), "r"(shared_address(&full)) : "memory");
  }
  wait(&full, 0);
  for (int i = threadIdx.x; i < bytes / 4; i += 32) box[i] = tile[i];
  if (threadIdx.x == 0 && back) {
    if (back == 2) asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(column), "r"(row), "r"(shared_address(tile)) : "memory");
    else asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(column), "r"(row), "r"(shared_address(tile)) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
torch::Tensor box(torch::Tensor x, torch::Tensor y, int row, int column, int swizzle, bool nan, int back, int columns, int step) {
  const auto mode = static_cast<CUtensorMapSwizzle>(swizzle);
  auto out = torch::empty({16 / step, columns}, x.options());
  box_kernel<<<1, 32>>>(map_of(x, mode, nan, columns, step), map_of(y, mode, nan, columns, step), out.data_ptr<float>(), row, column, static_cast<int>(out.numel() * 4), back);
  return out;
}

// ------------------------------------------------------------------------------------------------- clusters

// Each block adds up its part, and then the parts of all blocks of its cluster, from their shared memory.
__global__ void __cluster_dims__(4, 1, 1) cluster_sum_kernel(const int* x, int* sums, int n) {
  extern __shared__ int parts[];
  __shared__ int part;
  auto cluster = cg::this_cluster();
  parts[threadIdx.x] = 0;
  for (int i = blockIdx.x * n + threadIdx.x; i < (blockIdx.x + 1) * n; i += blockDim.x) parts[threadIdx.x] += x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    part = 0;
    for (int i = 0; i < blockDim.x; ++i) part += parts[i];
  }
  cluster.sync();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(&part, rank);
    sums[blockIdx.x] = sum + 1000000 * cluster.block_rank();
  }
  if (threadIdx.x == 1) {  // the same by the parts of single threads, from dynamic shared memory
    int sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
      for (int i = 0; i < blockDim.x; ++i) sum += cluster.map_shared_rank(parts, rank)[i];
    sums[gridDim.x + blockIdx.x] = sum;
  }
  cluster.sync();
}
torch::Tensor cluster_sums(torch::Tensor x, int blocks) {
  auto sums = torch::empty({2 * blocks}, x.options());
  cluster_sum_kernel<<<blocks, 64, 256>>>(x.data_ptr<int>(), sums.data_ptr<int>(), static_cast<int>(x.numel() / blocks));
  return sums;
}

// The first block of each cluster loads 256 numbers into all blocks of it at once. Each block arrives at a barrier of the
// first one when it has read them, so that this one may load the next ones.
__global__ void multicast_kernel(const float* x, float* y, int pieces) {
  __shared__ alignas(128) float in[256];
  __shared__ uint64_t full, empty;
  uint32_t rank, blocks;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  if (threadIdx.x == 0) {
    init(&full, 1), init(&empty, static_cast<int>(blocks));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  for (int i = 0; i < pieces; ++i) {
    if (threadIdx.x == 0) {
      expect(&full, 1024);
      if (rank == 0) {
        if (i > 0) wait(&empty, (i - 1) % 2);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 1024, [%2], %3;" ::"r"(shared_address(in)), "l"(x + i * 256),
                     "r"(shared_address(&full)), "h"(static_cast<uint16_t>((1 << blocks) - 1)) : "memory");
      }
    }
    wait(&full, i % 2);
    for (int j = threadIdx.x; j < 256; j += blockDim.x) y[(blockIdx.x * pieces + i) * 256 + j] = in[j] + rank;
    __syncthreads();
    if (threadIdx.x == 0)
      asm volatile(
          "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, 0;\n"
          "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&empty)) : "memory");
  }
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
int multicast(torch::Tensor x, torch::Tensor y, int cluster, int blocks) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks, config.blockDim = 64, config.attrs = &attribute, config.numAttrs = 1;
  cudaLaunchKernelEx(&config, multicast_kernel, static_cast<const float*>(x.data_ptr<float>()), y.data_ptr<float>(), static_cast<int>(x.numel() / 256));
  return cudaGetLastError();
}

// ------------------------------------------------------------------------------------------------- barriers

// cuda::barrier is an mbarrier: threads arrive with bytes, and wait for the copy that brings them.
__global__ void cuda_barrier_kernel(const int* x, int* y) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(128) int in[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(in, x, cuda::aligned_size_t<16>(1024), bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, 1024);
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < 256; i += blockDim.x) y[i] = in[i] * 3;
}
torch::Tensor cuda_barrier(torch::Tensor x) {
  auto y = torch::empty_like(x);
  cuda_barrier_kernel<<<1, 64>>>(x.data_ptr<int>(), y.data_ptr<int>());
  return y;
}

// One lane of each warp is elected.
__global__ void elect_kernel(int* count) {
  int mine = 0;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(mine));
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  if (mine) atomicAdd(count, 1);
}
int elected() {
  auto count = torch::zeros({1}, torch::TensorOptions().dtype(torch::kInt).device(torch::kCUDA));
  elect_kernel<<<2, 128>>>(count.data_ptr<int>());
  return count.item<int>();
}

// What makes a GPU hang.
__global__ void hang_kernel(const float* x, int how) {
  __shared__ alignas(128) float in[256];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) init(&full, how == 3 ? 2 : 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&full, how == 2 ? 2048 : 1024);
    load(in, x, 1024, &full);
  }
  wait(&full, 0);
  if (how == 1) wait(&full, 1);
  if (how == 4) asm volatile("barrier.cluster.arrive;" ::: "memory");
  if (how == 4 && threadIdx.x != 5) asm volatile("barrier.cluster.wait;" ::: "memory");
  if (how == 5 && threadIdx.x != 5) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
  if (how == 5 && threadIdx.x == 5) wait(&full, 1);
}
void hang(torch::Tensor x, int how) { hang_kernel<<<1, 32>>>(x.data_ptr<float>(), how); }
