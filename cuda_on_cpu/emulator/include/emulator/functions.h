// Calls that take a kernel as a value: attributes and occupancy. A kernel that is granted dynamic shared memory above
// 48 KiB is identified by its name. All instances of a template have one name. launch_calls.h has the launches.
#pragma once
#include <cstddef>
#include <string>
#include <type_traits>

#include "emulator/host.h"
#include "emulator/properties.h"

struct cudaFuncAttributes {
  std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
  cudaFuncAttributeClusterSchedulingPolicyPreference = 15,  // a hint
};
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0 };
enum : unsigned { cudaOccupancyDefault = 0, cudaOccupancyDisableCachingOverride = 1 };

namespace emulator {
std::string kernel_name(const std::string& text);  // the kernel's unqualified name; "" if the text is a variable
std::size_t dynamic_shared_limit(const char* kernel);
unsigned cluster_limit(const char* kernel);  // the most blocks of a cluster
cudaError_t set_attribute(const char* kernel, cudaFuncAttribute which, int value);
cudaError_t attributes(cudaFuncAttributes* out);
class Configuration;
// What is known of a kernel whose address a source takes. `launch` is null if nothing is known.
struct Known {
  const char* name = "";
  cudaError_t (*launch)(const char* name, const void* kernel, const Configuration& configuration, void** arguments) = nullptr;
};
void remember(const void* kernel, const Known& known);
Known known_kernel(const void* kernel);
bool is_code(const void* address);  // whether an address is in the code of this process
// Whether a call may take this for a kernel: not the address of a variable that holds one.
template <class Kernel>
bool may_be_kernel(const Kernel& kernel) {
  if constexpr (!std::is_pointer_v<Kernel>) return true;
  else return is_code(reinterpret_cast<const void*>(kernel));
}
// The number of blocks of a kernel that one multiprocessor can run at once.
int resident_blocks(int threads, std::size_t shared_bytes);
}  // namespace emulator

#pragma GCC visibility push(hidden)
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, Kernel kernel) {
  return emulator::may_be_kernel(kernel) ? emulator::attributes(out) : emulator::give(cudaErrorInvalidDeviceFunction);
}
template <class Kernel>
cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) { return emulator::synchronize(); }
template <class Kernel>
cudaError_t cudaFuncSetSharedMemConfig(Kernel, cudaSharedMemConfig) { return emulator::synchronize(); }
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel kernel, int threads, std::size_t shared_bytes) {
  if (!emulator::may_be_kernel(kernel)) return emulator::give(cudaErrorInvalidDeviceFunction);
  *blocks = emulator::resident_blocks(threads, shared_bytes);
  return emulator::give(threads > 0 ? cudaSuccess : cudaErrorInvalidValue);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Kernel kernel, int threads, std::size_t shared_bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}
template <class Kernel, class SharedBytes>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel kernel, SharedBytes shared_bytes, int limit = 0) {
  if (!emulator::may_be_kernel(kernel)) return emulator::give(cudaErrorInvalidDeviceFunction);
  *block = limit > 0 && limit < static_cast<int>(emulator::limits::kThreadsPerBlock) ? limit : static_cast<int>(emulator::limits::kThreadsPerBlock);
  while (*block > 32 && !emulator::resident_blocks(*block, shared_bytes(*block))) *block -= 32;
  *grid = emulator::resident_blocks(*block, shared_bytes(*block)) * emulator::limits::kMultiprocessors;
  return emulator::synchronize();
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel kernel, std::size_t shared_bytes = 0, int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(grid, block, kernel, [=](int) { return shared_bytes; }, limit);
}
#pragma GCC visibility pop
