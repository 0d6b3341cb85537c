// torch's guards, which select a device or a stream. There is only one device, so a guard changes nothing.
#pragma once
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#pragma GCC visibility push(hidden)
namespace c10::cuda {

struct CUDAGuard : DeviceGuard {
  explicit CUDAGuard(DeviceIndex index) : DeviceGuard(Device(kCUDA, index)) {}
  explicit CUDAGuard(Device device) : DeviceGuard(device) {
    TORCH_CHECK(device.is_cuda(), "Expected a CUDA device, but got ", device);
  }
};

struct OptionalCUDAGuard : OptionalDeviceGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) : OptionalDeviceGuard(device) {}
  explicit OptionalCUDAGuard(DeviceIndex index) : OptionalDeviceGuard(Device(kCUDA, index)) {}
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(Stream) {}
};

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
#pragma GCC visibility pop
