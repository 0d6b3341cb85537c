// Kernels with asynchronous units. `how` is 0 for what is right, and else the number of a mistake, whose line is marked.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

namespace cg = cooperative_groups;

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }
__device__ void init(uint64_t* barrier, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)); }  // BUG wrong 1
__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");  // BUG wrong 2
}
__device__ void arrive(uint64_t* barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"); }  // BUG wrong 6
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
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");  // BUG ring 2 3 wrong 3 4 5
}
__device__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");  // BUG copied 1 2 3 wrong 7
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// y = 2 x, 256 numbers at a time. 5, 6 and 7 are right, too.
__global__ void copied_kernel(const float* x, float* y, int pieces, int how) {
  __shared__ alignas(128) float tile[256];
  for (int i = 0; i < pieces; ++i) {
    if (how == 3) fence_async();  // before the write
    tile[threadIdx.x] = 2 * x[i * 256 + threadIdx.x];  // BUG copied 4
    if (how == 0 || how == 4 || how == 7) fence_async();
    if (how == 2 && threadIdx.x == 0) fence_async();  // of the others' writes, too late for these
    if (how == 6) asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (how == 7) __syncthreads();
    if (threadIdx.x == 0) {
      if (how == 5) fence_async();
      store(y + i * 256, tile, 1024);
      if (how != 4) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
torch::Tensor copied(torch::Tensor x, int how) {
  auto y = torch::empty_like(x);
  copied_kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.numel() / 256), how);
  return y;
}

// The same by tensor maps: each block copies a box of 16 rows of 32 numbers.
__global__ void boxes_kernel(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int how) {
  __shared__ alignas(128) float in[16 * 32], out[16 * 32];
  __shared__ uint64_t full;
  const int row = 16 * blockIdx.x;
  if (threadIdx.x == 0) {
    init(&full, 1);
    expect(&full, sizeof in);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(in)), "l"(&from), "r"(how == 3 ? 1 : 0), "r"(row), "r"(shared_address(&full)) : "memory");  // BUG boxes 3
  }
  __syncthreads();
  if (how != 2) wait(&full, 0);
  for (int i = threadIdx.x; i < 16 * 32; i += 32) out[i] = 2 * in[i];  // BUG boxes 2
  if (how != 1) fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(0), "r"(row), "r"(shared_address(out)) : "memory");  // BUG boxes 1
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
  if (how == 2) wait(&full, 0);
}
CUtensorMap map_of(torch::Tensor x) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  TORCH_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found) == cudaSuccess);
  CUtensorMap map;
  const cuuint64_t sizes[] = {32, static_cast<cuuint64_t>(x.size(0))}, strides[] = {128};
  const cuuint32_t box[] = {32, 16}, steps[] = {1, 1};
  TORCH_CHECK(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
                  &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x.data_ptr(), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}
torch::Tensor boxes(torch::Tensor x, int how) {
  auto y = torch::empty_like(x);
  CUtensorMap from = map_of(x);
  if (how == 4) memset(&from, 0, sizeof from);
  boxes_kernel<<<(x.size(0) + 15) / 16, 32>>>(from, map_of(y), how);
  return y;
}

// ------------------------------------------------------------------------------------------------- products

__device__ uint64_t descriptor(const void* matrix) { return (shared_address(matrix) & 0x3FFFF) >> 4 | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32; }
__device__ void multiply(float (&d)[8], uint64_t a, uint64_t b) {
  asm volatile(  // BUG products 1 5
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b));
}
__device__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ void wait_product() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// Where an element of a matrix without a swizzle is: 16 k for each row, in tiles of 8 x 8.
__device__ int place(int row, int k) { return row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8; }
__device__ void put(float* C, const float (&d)[8]) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 8; ++i) C[(row + i / 2 % 2 * 8) * 16 + column + i / 4 * 8 + i % 2] = d[i];  // BUG products 2
}

// C (64 x 16) = A (64 x K) B (16 x K)^T, 16 of K at a time, which threads write to shared memory.
__global__ void products_kernel(const __half* A, const __half* B, float* C, int K, int how) {
  __shared__ alignas(1024) __half a[64 * 16], b[16 * 16];
  float d[8] = {};
  for (int k = 0; k < K; k += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += 128) a[place(i / 16, i % 16)] = A[i / 16 * K + k + i % 16];  // BUG products 4
    for (int i = threadIdx.x; i < 16 * 16; i += 128) b[place(i / 16, i % 16)] = B[i / 16 * K + k + i % 16];
    if (how != 1) fence_async();
    __syncthreads();
    begin();
    multiply(d, how == 5 ? descriptor(a) + (1 << 13) : descriptor(a), descriptor(b));
    commit();
    if (how == 3) d[0] = 0;  // BUG products 3
    if (how != 2 && how != 4) wait_product<0>();
    __syncthreads();
  }
  if (how == 4) wait_product<0>();
  put(C, d);
}
torch::Tensor products(torch::Tensor A, torch::Tensor B, int how) {
  auto C = torch::empty({64, 16}, A.options().dtype(torch::kFloat));
  products_kernel<<<1, 128>>>(static_cast<const __half*>(A.data_ptr()), static_cast<const __half*>(B.data_ptr()), C.data_ptr<float>(), static_cast<int>(A.size(1)), how);
  return C;
}

// The same for matrices that lie in global memory as wgmma needs them: one warp loads into a ring of two stages, and a
// warpgroup multiplies. One thread of it gives a stage back, or all do if `how` is odd.
__global__ void ring_kernel(const __half* A, const __half* B, float* C, int steps, int how) {
  __shared__ alignas(1024) __half a[2][64 * 16], b[2][16 * 16];
  __shared__ uint64_t full[2], empty[2];
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) init(&full[i], 1), init(&empty[i], how % 2 ? 128 : 1);
  __syncthreads();
  if (threadIdx.x >= 128) {
    for (int i = 0; i < steps && threadIdx.x == 128; ++i) {
      wait(&empty[i % 2], i / 2 % 2 ^ 1);
      expect(&full[i % 2], 2048 + 512);
      load(a[i % 2], A + i * 1024, 2048, &full[i % 2]);
      load(b[i % 2], B + i * 256, 512, &full[i % 2]);
    }
    return;
  }
  float d[8] = {};
  for (int i = 0; i < steps; ++i) {
    wait(&full[i % 2], i / 2 % 2);
    begin();
    multiply(d, descriptor(a[i % 2]), descriptor(b[i % 2]));
    commit();
    const bool gives = how % 2 || threadIdx.x == 0;
    if (how >= 2 && gives) arrive(&empty[i % 2]);  // before the product has ended
    wait_product<0>();
    if (how < 2 && gives) arrive(&empty[i % 2]);
  }
  put(C, d);
}
torch::Tensor ring(torch::Tensor A, torch::Tensor B, int how) {
  auto C = torch::empty({64, 16}, A.options().dtype(torch::kFloat));
  ring_kernel<<<1, 160>>>(static_cast<const __half*>(A.data_ptr()), static_cast<const __half*>(B.data_ptr()), C.data_ptr<float>(), static_cast<int>(A.size(0)), how);
  return C;
}

// ------------------------------------------------------------------------------------------------- clusters

// Each block writes its number to the next block of its cluster, and reads what it got.
__global__ void __cluster_dims__(2, 1, 1) passed_kernel(int* out, int how) {
  extern __shared__ int dynamic[];
  __shared__ int got[32];
  auto cluster = cg::this_cluster();
  int* there = cluster.map_shared_rank(how == 1 && cluster.block_rank() == 1 ? got + 1 : got, cluster.block_rank() ^ 1);
  int* there_too = cluster.map_shared_rank(dynamic, cluster.block_rank() ^ 1);
  cluster.sync();
  there[threadIdx.x] = blockIdx.x;  // BUG passed 1
  there_too[threadIdx.x] = -1;
  if (how != 2 || threadIdx.x != 3 || cluster.block_rank() == 0) cluster.sync();
  out[blockIdx.x * 32 + threadIdx.x] = got[threadIdx.x] + dynamic[threadIdx.x];  // BUG passed 2
  cluster.sync();
}
torch::Tensor passed(int how) {
  auto out = torch::empty({4 * 32}, torch::TensorOptions().dtype(torch::kInt).device(torch::kCUDA));
  passed_kernel<<<4, 32, 128>>>(out.data_ptr<int>(), how);
  return out;
}

// ---------------------------------------------------------------------------------------------------- errors

__global__ void wrong_kernel(const float* x, float* y, int how) {
  __shared__ alignas(128) float in[256];
  __shared__ alignas(16) uint64_t full[2];
  if (threadIdx.x) return;
  uint64_t* barrier = how == 1 ? reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(full) + 4) : full;
  if (how != 2) init(barrier, 1);
  expect(barrier, 512);
  if (how == 3) load(in + 1, x, 512, full);
  if (how == 4) load(in, x + 1, 512, full);
  if (how == 5) load(in, x, 500, full);
  if (how == 6) arrive(full), arrive(full);
  if (how == 7) store(y + 1, in, 512);
}
void wrong(torch::Tensor x, torch::Tensor y, int how) { wrong_kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), how); }
