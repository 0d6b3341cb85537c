// Checks of the devices of tensors.
#pragma once
#include <ATen/cuda/CUDAContext.h>

namespace at::cuda {
inline bool check_device(ArrayRef<Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (!tensor.is_cuda()) return false;
  return true;
}
}  // namespace at::cuda
