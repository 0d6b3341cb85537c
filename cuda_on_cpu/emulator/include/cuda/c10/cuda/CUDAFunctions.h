// The current device. There is only one.
#pragma once
#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#pragma GCC visibility push(hidden)
namespace c10::cuda {
inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex device) { C10_CUDA_CHECK(cudaSetDevice(device)); }
inline cudaError_t MaybeSetDevice(DeviceIndex device) { return cudaSetDevice(device); }
inline DeviceIndex ExchangeDevice(DeviceIndex device) {
  set_device(device);
  return 0;
}
inline DeviceIndex MaybeExchangeDevice(DeviceIndex device) { return ExchangeDevice(device); }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
}  // namespace c10::cuda
#pragma GCC visibility pop
