// Checks of CUDA calls that become C++ exceptions.
#pragma once
#include <c10/util/Exception.h>
#include <cuda.h>

#include <string>

namespace emulator {
inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const std::string detail = error == synchronize() ? failure_detail() : "";
  TORCH_CHECK(false, "CUDA error: ", error_string(error), detail.empty() ? "" : " (" + detail + ")");
}
}  // namespace emulator

#define C10_CUDA_CHECK(EXPR) ::emulator::check(EXPR)
#define C10_CUDA_CHECK_WARN(EXPR) static_cast<void>(EXPR)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
