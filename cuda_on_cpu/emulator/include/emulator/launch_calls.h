// The launch functions of the CUDA runtime. They take a kernel by its address, so the kernels whose address a source
// takes are known by it.
#pragma once
#include "emulator/functions.h"
#include "emulator/launch.h"

// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeAccessPolicyWindow = 1,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeSynchronizationPolicy = 3,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributeProgrammaticEvent = 7,
  cudaLaunchAttributePriority = 8,
  cudaLaunchAttributePreferredClusterDimension = 11,
  cudaLaunchAttributeLaunchCompletionEvent = 12,
  cudaLaunchAttributePreferredSharedMemoryCarveout = 14,
};
enum cudaAccessProperty { cudaAccessPropertyNormal = 0, cudaAccessPropertyStreaming = 1, cudaAccessPropertyPersisting = 2 };
struct cudaAccessPolicyWindow {
  void* base_ptr;
  std::size_t num_bytes;
  float hitRatio;
  cudaAccessProperty hitProp, missProp;
};
enum cudaClusterSchedulingPolicy { cudaClusterSchedulingPolicyDefault, cudaClusterSchedulingPolicySpread, cudaClusterSchedulingPolicyLoadBalancing };
union cudaLaunchAttributeValue {
  char pad[64];
  cudaAccessPolicyWindow accessPolicyWindow;
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim, preferredClusterDim;
  cudaClusterSchedulingPolicy clusterSchedulingPolicyPreference;
  int programmaticStreamSerializationAllowed, priority;
  struct {
    cudaEvent_t event;
    int flags, triggerAtBlockStart;
  } programmaticEvent;
  unsigned sharedMemCarveout;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  char pad[8 - sizeof(cudaLaunchAttributeID)];
  cudaLaunchAttributeValue val;
};
typedef cudaLaunchAttribute CUlaunchAttribute;
// Attributes of streams. They are hints.
using cudaStreamAttrID = cudaLaunchAttributeID;
using cudaStreamAttrValue = cudaLaunchAttributeValue;
#define cudaStreamAttributeAccessPolicyWindow cudaLaunchAttributeAccessPolicyWindow
#define cudaStreamAttributeSynchronizationPolicy cudaLaunchAttributeSynchronizationPolicy
#define cudaStreamAttributePriority cudaLaunchAttributePriority
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace emulator {

void* driver_function(const char* name);  // null for a function that the emulator does not have

// A cudaLaunchConfig_t with the place of the call.
struct PlacedConfig {
  const cudaLaunchConfig_t* config;
  const char* file;
  int line;
  PlacedConfig(const cudaLaunchConfig_t* config, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : config(config), file(file), line(line) {}

  Configuration configuration() const {
    Configuration made(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, file, line);
    made.clusters(cluster());
    for (unsigned i = 0; i < config->numAttrs; ++i)
      if (config->attrs[i].id == cudaLaunchAttributeCooperative && config->attrs[i].val.cooperative) made.cooperative();
    return made;
  }
  dim3 cluster() const {
    for (unsigned i = 0; i < config->numAttrs; ++i)
      if (const auto& size = config->attrs[i].val.clusterDim; config->attrs[i].id == cudaLaunchAttributeClusterDimension) return {size.x, size.y, size.z};
    return {};
  }
};

template <class... P>
cudaError_t launch_known(const char* name, const void* kernel, const Configuration& configuration, void** arguments) {
  return launch(name, reinterpret_cast<void (*)(P...)>(const_cast<void*>(kernel)), configuration, arguments, std::index_sequence_for<P...>());
}
// The rewritten source passes each kernel whose address it takes through `known`, with the kernel's name; the name of a
// variable is empty.
template <class... P>
auto known(const char* name, void (*kernel)(P...)) {
  remember(reinterpret_cast<const void*>(kernel), {name, &launch_known<P...>});
  return kernel;
}
template <class R, class... P>
  requires(!std::is_void_v<R>)
auto known(const char*, R (*function)(P...)) {
  return function;
}
inline const void* known(const char*, const void* kernel) { return kernel; }

// Launches a known kernel. The address of anything else is the error that it is on a GPU.
inline cudaError_t launch(const void* kernel, const Configuration& configuration, void** arguments) {
  const Known found = known_kernel(kernel);
  return found.launch ? found.launch(found.name, kernel, configuration, arguments) : give(cudaErrorInvalidDeviceFunction);
}

}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID, const cudaStreamAttrValue*) { return emulator::synchronize(stream); }
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::launch(kernel, emulator::Configuration(grid, block, shared_bytes, stream, file, line), arguments);
}
inline cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::launch(kernel, emulator::Configuration(grid, block, shared_bytes, stream, file, line).cooperative(), arguments);
}
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::launch(kernel, emulator::PlacedConfig(config, file, line).configuration(), arguments);
}
// CUDA has these overloads for a kernel that is not cast to void*.
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(emulator::known("", kernel)), grid, block, arguments, shared_bytes, stream, file, line);
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(emulator::known("", kernel)), grid, block, arguments, shared_bytes, stream, file, line);
}
template <class... P>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(P...), void** arguments, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return cudaLaunchKernelExC(config, reinterpret_cast<const void*>(emulator::known("", kernel)), arguments, file, line);
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(emulator::PlacedConfig config, void (*kernel)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a launch with another number of arguments than the kernel has parameters");
  std::tuple<std::remove_cv_t<P>...> values(static_cast<P>(arguments)...);
  return std::apply([&](auto&... each) {
    void* addresses[] = {&each..., nullptr};
    return cudaLaunchKernelExC(config.config, kernel, addresses, config.file, config.line);
  }, values);
}
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  if (!emulator::is_code(kernel)) return emulator::give(cudaErrorInvalidDeviceFunction);
  return emulator::set_attribute(emulator::known_kernel(kernel).name, which, value);
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute which, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(emulator::known("", kernel)), which, value);
}
// The functions of the driver that the emulator has. The others are not found.
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound, cudaDriverEntryPointVersionNotSufficent };
enum : unsigned long long { cudaEnableDefault = 0, cudaEnableLegacyStream = 1, cudaEnablePerThreadDefaultStream = 2 };
inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult* result = nullptr) {
  *function = emulator::driver_function(name);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return emulator::synchronize();
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long flags, cudaDriverEntryPointQueryResult* result = nullptr) {
  return cudaGetDriverEntryPoint(name, function, flags, result);
}
// How many clusters an H200 runs at once. How its multiprocessors are grouped is not known here, so it may be fewer there.
template <class K>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, K kernel, const cudaLaunchConfig_t* config) {
  if (!emulator::may_be_kernel(kernel)) return emulator::give(cudaErrorInvalidDeviceFunction);
  const dim3 size = emulator::PlacedConfig(config).cluster(), block = config->blockDim;
  const int blocks = emulator::resident_blocks(static_cast<int>(block.x * block.y * block.z), config->dynamicSmemBytes) * static_cast<int>(emulator::limits::kMultiprocessors);
  *clusters = blocks / static_cast<int>(size.x * size.y * size.z);
  return emulator::synchronize();
}
template <class K>
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, K kernel, const cudaLaunchConfig_t*) {
  if (!emulator::may_be_kernel(kernel)) return emulator::give(cudaErrorInvalidDeviceFunction);
  *size = 8;
  return emulator::synchronize();
}
// Programmatic dependent launch. Here a kernel begins when the one before it has ended.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
#pragma GCC visibility pop
