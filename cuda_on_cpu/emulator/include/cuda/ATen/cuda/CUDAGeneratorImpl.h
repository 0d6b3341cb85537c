// The random generator of the device, from which extensions take the seeds of Philox for their kernels.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <utility>

#pragma GCC visibility push(hidden)
namespace at {

// Generators of the emulated device are torch's for the CPU, so torch.manual_seed seeds them. This class has further
// functions and no further data, because objects of the base class are used through it (`Generator::get`).
struct CUDAGeneratorImpl : CPUGeneratorImpl {
  static DeviceType device_type() { return kCPU; }
  // Returns a new seed for each call, so no two launches use the same numbers. The caller has locked `mutex_`.
  PhiloxCudaState philox_cuda_state(uint64_t) { return PhiloxCudaState(random64(), 0); }
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t) { return {random64(), 0}; }
};

namespace cuda::detail {
inline const Generator& getDefaultCUDAGenerator(DeviceIndex = -1) { return at::detail::getDefaultCPUGenerator(); }
inline Generator createCUDAGenerator(DeviceIndex = -1) { return at::detail::createCPUGenerator(); }
}  // namespace cuda::detail

}  // namespace at
#pragma GCC visibility pop
