// The properties of the emulated device, which are those of an H200, except the free memory.
#pragma once
#include <cstddef>
#include <cstring>

#include "emulator/host.h"

// Limits of compute capability 9.0. https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
namespace emulator::limits {
constexpr unsigned kThreadsPerBlock = 1024, kBlockX = 1024, kBlockY = 1024, kBlockZ = 64;
constexpr unsigned kGridX = 0x7FFFFFFF, kGridY = 65535, kGridZ = 65535;
constexpr int kThreadsPerMultiprocessor = 2048, kBlocksPerMultiprocessor = 32, kRegisters = 65536;
constexpr int kMultiprocessors = 132;
constexpr std::size_t kSharedBytes = 48 * 1024;  // a launch with more needs cudaFuncSetAttribute
constexpr std::size_t kSharedBytesAsked = 227 * 1024, kSharedBytesPerMultiprocessor = 228 * 1024, kSharedBytesReserved = 1024;
constexpr std::size_t kGlobalBytes = 150'109'880'320, kConstantBytes = 64 * 1024;
constexpr std::size_t kFreeBytes = std::size_t(8) << 30;  // of the host's memory, so that a program which takes all can run
constexpr std::size_t kParameterBytes = 32764;  // ptxas 13.0 for sm_90: "Formal parameter space overflowed"
constexpr int kL2Bytes = 60 << 20, kMajor = 9, kMinor = 0, kVersion = 13000;
}  // namespace emulator::limits

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  std::size_t totalConstMem;
  int major, minor;
  std::size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount, integrated, canMapHostMemory, concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
  int tccDriver, asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
  std::size_t sharedMemPerBlockOptin;
  int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int memoryPoolsSupported, clusterLaunch;
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxGridDimY = 6,
  cudaDevAttrMaxGridDimZ = 7,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrTotalConstantMemory = 9,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrClusterLaunch = 120,
};
enum cudaLimit { cudaLimitStackSize = 0, cudaLimitPrintfFifoSize = 1, cudaLimitMallocHeapSize = 2, cudaLimitPersistingL2CacheSize = 6 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };

namespace emulator {
cudaError_t properties(cudaDeviceProp* out, int device);
cudaError_t attribute(int* out, cudaDeviceAttr which, int device);
}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) { return emulator::properties(out, device); }
inline cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr which, int device) { return emulator::attribute(out, which, device); }
inline cudaError_t cudaRuntimeGetVersion(int* version) { *version = emulator::limits::kVersion; return cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { *version = emulator::limits::kVersion; return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return emulator::synchronize(); }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return emulator::synchronize(); }
inline cudaError_t cudaDeviceReset() { return emulator::synchronize(); }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return emulator::synchronize(); }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
#pragma GCC visibility pop
