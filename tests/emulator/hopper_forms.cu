// Forms of Hopper's instructions that public kernels use, one kernel each. A GPU runs this file, too (sm_90a).
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <torch/extension.h>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }
__device__ void init(uint64_t* barrier, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)); }
__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nLAB_WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra LAB_WAIT_%=;\n}" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

// Each thread sends four numbers to the other block of its cluster, and counts itself there. The barrier there gets the
// bytes, of which `more` are not sent.
__global__ void __cluster_dims__(2, 1, 1) sent_kernel(const float4* x, float* y, int* counts, int more) {
  __shared__ alignas(16) float in[4 * 32];
  __shared__ int count;
  __shared__ uint64_t full;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) count = 0, init(&full, 1), expect(&full, 32 * (16 + 4) + more);
  cluster.sync();
  const float4 mine = x[blockIdx.x * 32 + threadIdx.x];
  asm volatile(
      "{\n.reg .b32 to, count, full;\n"
      "mapa.shared::cluster.u32 to, %0, %7;\nmapa.shared::cluster.u32 count, %1, %7;\nmapa.shared::cluster.u32 full, %2, %7;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6}, [full];\n"
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 [count], 1, [full];\n}" ::"r"(shared_address(in + 4 * threadIdx.x)),
      "r"(shared_address(&count)), "r"(shared_address(&full)), "f"(mine.x), "f"(mine.y), "f"(mine.z), "f"(mine.w), "r"(cluster.block_rank() ^ 1) : "memory");
  wait(&full, 0);
  for (int i = threadIdx.x; i < 128; i += 32) y[blockIdx.x * 128 + i] = in[i];
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
  cluster.sync();
}
void sent(torch::Tensor x, torch::Tensor y, torch::Tensor counts, int more) {
  sent_kernel<<<2, 32>>>(static_cast<const float4*>(x.data_ptr()), y.data_ptr<float>(), counts.data_ptr<int>(), more);
}

int hints() { return cudaFuncSetAttribute(sent_kernel, cudaFuncAttributeClusterSchedulingPolicyPreference, cudaClusterSchedulingPolicySpread); }

// The same by functions of cuda::ptx, with numbers of 64 bits. The greatest number of the other block is reduced there, and
// the blocks' sums of their numbers are reduced in bulk in the memory of the device.
__global__ void __cluster_dims__(2, 1, 1) sent_by_library_kernel(const int64_t* x, int64_t* y, int* greatest, int* sums) {
  __shared__ alignas(16) int64_t in[32];
  __shared__ alignas(16) int own[32];
  __shared__ int most;
  __shared__ uint64_t full;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned other = cluster.block_rank() ^ 1;
  if (threadIdx.x == 0) {
    most = 0;
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &full, 32 * (8 + 4));
  }
  cluster.sync();
  const int64_t mine = x[blockIdx.x * 32 + threadIdx.x];
  uint64_t* full_there = cluster.map_shared_rank(&full, other);
  ptx::st_async(cluster.map_shared_rank(in + threadIdx.x, other), mine, full_there);
  ptx::red_async(ptx::op_max, cluster.map_shared_rank(&most, other), static_cast<int>(mine), full_there);
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
  y[blockIdx.x * 32 + threadIdx.x] = in[threadIdx.x];
  own[threadIdx.x] = static_cast<int>(mine);
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    greatest[blockIdx.x] = most;
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sums, own, 128);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
  cluster.sync();
}
void sent_by_library(torch::Tensor x, torch::Tensor y, torch::Tensor greatest, torch::Tensor sums) {
  sent_by_library_kernel<<<2, 32>>>(x.data_ptr<int64_t>(), y.data_ptr<int64_t>(), greatest.data_ptr<int>(), sums.data_ptr<int>());
}

// A GPU needs the alignment of an access, not that of the type whose member it accesses. No kernel calls the template, so
// nvcc does not miss the function.
struct alignas(128) Row {
  float at[32];
};
template <class T>
__device__ float of_a_later_gpu(float2 pair) { return function_of_a_later_gpu(pair); }
__global__ void second_half_kernel(const float* x, float* y) { y[threadIdx.x] = reinterpret_cast<const Row*>(x + 16)->at[threadIdx.x]; }
void second_half(torch::Tensor x, torch::Tensor y) { second_half_kernel<<<1, 16>>>(x.data_ptr<float>(), y.data_ptr<float>()); }

// Stores and loads one matrix. The lanes that give no row give addresses outside of the block's memory.
__global__ void one_matrix_kernel(const uint32_t* x, uint32_t* y) {
  __shared__ alignas(16) uint32_t matrix[32];
  const uint32_t row = shared_address(matrix) + 16 * threadIdx.x + (threadIdx.x < 8 ? 0 : 1 << 20);
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(x[threadIdx.x]) : "memory");
  __syncwarp();
  uint32_t read = 0;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(read) : "r"(row) : "memory");
  y[threadIdx.x] = read + matrix[threadIdx.x];
}
void one_matrix(torch::Tensor x, torch::Tensor y) { one_matrix_kernel<<<1, 32>>>(static_cast<const uint32_t*>(x.data_ptr()), static_cast<uint32_t*>(y.data_ptr())); }

// Driver functions for memory that processes share are declared, and refuse to run.
int shares_memory(bool calls) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED, prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE, prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  cudaIpcMemHandle_t shared = {};
  return calls ? cuMemCreate(&handle, 1 << 21, &prop, 0) : static_cast<int>(sizeof shared);
}
