// PyTorch's atomic addition into a tensor.
#pragma once
#include <ATen/cuda/Atomic.cuh>

namespace at::native {
template <class scalar_t, class index_t>
void fastAtomicAdd(scalar_t* tensor, index_t index, const index_t, scalar_t value, bool) { gpuAtomicAddNoReturn(tensor + index, value); }
}  // namespace at::native
