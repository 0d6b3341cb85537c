// PyTorch's macros for grid-stride loops.
#pragma once
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#include <limits>

namespace at::cuda::detail {

#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                               \
  for (int64_t emulator_index = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x,  \
               i##_unused = 0; emulator_index < (n) && !i##_unused;                           \
       emulator_index += static_cast<int64_t>(blockDim.x) * gridDim.x)                        \
    if (index_type i = static_cast<index_type>(emulator_index); true)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)

constexpr int CUDA_NUM_THREADS = 1024;
inline int GET_BLOCKS(const int64_t n, const int64_t threads = CUDA_NUM_THREADS) {
  TORCH_INTERNAL_ASSERT(n > 0, "CUDA kernel launch blocks must be positive, but got N=", n);
  return static_cast<int>((n - 1) / threads + 1);
}

}  // namespace at::cuda::detail
