// PyTorch's cuBLAS handle, without its stream.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#pragma GCC visibility push(hidden)
namespace at::cuda {
using namespace c10::cuda;
inline bool is_available() { return true; }
inline int warp_size() { return 32; }
inline cublasHandle_t getCurrentCUDABlasHandle() { return emulator::torch_cublas_handle(); }
}  // namespace at::cuda
#pragma GCC visibility pop
