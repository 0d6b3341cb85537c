// PyTorch's view of the device and its cuBLAS handle, without streams.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#pragma GCC visibility push(hidden)
namespace at::cuda {
using namespace c10::cuda;
inline bool is_available() { return true; }
inline int64_t getNumGPUs() { return 1; }
inline int warp_size() { return 32; }
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp out;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&out, 0));
    return out;
  }();
  TORCH_CHECK(device <= 0, "device=", static_cast<int>(device), ", num_gpus=1");
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }
inline cublasHandle_t getCurrentCUDABlasHandle() {
  cublasSetStream(emulator::torch_cublas_handle(), emulator::torch_stream());
  return emulator::torch_cublas_handle();
}
inline cublasLtHandle_t getCurrentCUDABlasLtHandle() { return emulator::lt_handle(); }
}  // namespace at::cuda
#pragma GCC visibility pop
