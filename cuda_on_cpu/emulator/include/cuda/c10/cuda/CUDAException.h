// Checks of CUDA calls. A failure becomes a C++ exception.
#pragma once
#include <c10/util/Exception.h>
#include <cuda.h>

#include <string>

namespace emulator {
inline void check(cudaError_t error, const char* function, const char* file, unsigned line) {
  if (error != cudaSuccess)
    c10::detail::torchCheckFail(function, file, line, std::string("CUDA error: ") + error_string(error));
}
}  // namespace emulator

#define C10_CUDA_CHECK(EXPR) ::emulator::check(EXPR, __func__, __FILE__, __LINE__)
#define C10_CUDA_CHECK_WARN(EXPR) static_cast<void>(EXPR)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
