// Accesses at a byte `at` of a block's shared memory, counted from the beginning of the named part.
#include <torch/extension.h>

#include <cooperative_groups.h>

__device__ float touched(volatile char* memory, long at, bool writes) {
  if (writes) memory[at] = 1;
  return writes ? 1 : memory[at] == memory[at];
}

__global__ void one_array(float* out, long at, bool writes) {
  __shared__ float s[33];  // 132 bytes
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (!threadIdx.x) out[0] = touched(reinterpret_cast<char*>(s), at, writes);
}

// Of another size, and declared behind the first kernel.
__global__ void two_arrays(float* out, long at, bool writes) {
  __shared__ float s[100], t[20];  // 400 + 80 bytes
  s[threadIdx.x] = t[threadIdx.x % 20] = threadIdx.x;
  __syncthreads();
  char* first = reinterpret_cast<char*>(s < t ? s : t);
  if (!threadIdx.x) out[0] = touched(first, at, writes);
}

__global__ void both_parts(float* out, long at, bool writes) {
  __shared__ float s[33];
  extern __shared__ char dynamic[];
  s[threadIdx.x] = threadIdx.x;
  if (threadIdx.x < 16) dynamic[threadIdx.x] = 0;
  __syncthreads();
  if (!threadIdx.x) out[0] = touched(dynamic, at, writes) && s[31] == 31;
}

__global__ void dynamic_part(float* out, long at, bool writes) {
  extern __shared__ double numbers[];
  numbers[0] = 0;
  if (!threadIdx.x) out[0] = touched(reinterpret_cast<char*>(numbers), at, writes);
}

template <int N>
__global__ void sized(float* out, long at, bool writes) {
  __shared__ float s[N];
  s[threadIdx.x % N] = threadIdx.x;
  __syncthreads();
  if (!threadIdx.x) out[0] = touched(reinterpret_cast<char*>(s), at, writes);
}

__device__ float in_helper(long at, bool writes) {
  __shared__ struct {
    float s[32];
    int n;
  } both;  // 132 bytes
  both.s[threadIdx.x] = both.n = threadIdx.x;
  __syncthreads();
  return threadIdx.x ? 0 : touched(reinterpret_cast<char*>(&both), at, writes);
}
__global__ void with_helper(float* out, long at, bool writes) {
  const float got = in_helper(at, writes);
  if (!threadIdx.x) out[0] = got;
}

// Block 0 accesses the memory of block 1.
__global__ void __cluster_dims__(2, 1, 1) in_cluster(float* out, long at, bool writes) {
  __shared__ float s[32];
  const auto cluster = cooperative_groups::this_cluster();
  s[threadIdx.x] = cluster.block_rank();
  cluster.sync();
  float* other = cluster.map_shared_rank(s, 1 - cluster.block_rank());
  if (!blockIdx.x && !threadIdx.x) out[0] = touched(reinterpret_cast<char*>(other), at, writes) && (writes || other[31] == 1);
  cluster.sync();
}

torch::Tensor touch(int64_t kernel, int64_t at, bool writes) {
  auto out = torch::zeros(1, torch::device(torch::kCUDA));
  float* to = out.data_ptr<float>();
  switch (kernel) {
    case 0: one_array<<<3, 32>>>(to, at, writes); break;
    case 1: two_arrays<<<3, 32>>>(to, at, writes); break;
    case 2: both_parts<<<3, 32, 100>>>(to, at, writes); break;
    case 3: dynamic_part<<<3, 32, 400>>>(to, at, writes); break;
    case 4: sized<16><<<3, 32>>>(to, at, writes); break;
    case 5: sized<3000><<<3, 32>>>(to, at, writes); break;
    case 6: with_helper<<<3, 32>>>(to, at, writes); break;
    case 7: in_cluster<<<2, 32>>>(to, at, writes); break;
  }
  return out;
}
