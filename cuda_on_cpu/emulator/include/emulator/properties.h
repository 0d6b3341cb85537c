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
constexpr int kClockKilohertz = 1'980'000, kMemoryClockKilohertz = 3'201'000, kBusBits = 6144;
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
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, memoryPoolsSupported, clusterLaunch;
};

enum cudaComputeMode { cudaComputeModeDefault = 0, cudaComputeModeExclusive = 1, cudaComputeModeProhibited = 2, cudaComputeModeExclusiveProcess = 3 };
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
  cudaDevAttrMaxPitch = 11,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrTextureAlignment = 14,
  cudaDevAttrGpuOverlap = 15,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrKernelExecTimeout = 17,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrSurfaceAlignment = 30,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrEccEnabled = 32,
  cudaDevAttrPciBusId = 33,
  cudaDevAttrPciDeviceId = 34,
  cudaDevAttrTccDriver = 35,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrAsyncEngineCount = 40,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrPciDomainId = 50,
  cudaDevAttrTexturePitchAlignment = 51,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrStreamPrioritiesSupported = 78,
  cudaDevAttrGlobalL1CacheSupported = 79,
  cudaDevAttrLocalL1CacheSupported = 80,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrIsMultiGpuBoard = 84,
  cudaDevAttrMultiGpuBoardGroupID = 85,
  cudaDevAttrHostNativeAtomicSupported = 86,
  cudaDevAttrSingleToDoublePrecisionPerfRatio = 87,
  cudaDevAttrPageableMemoryAccess = 88,
  cudaDevAttrConcurrentManagedAccess = 89,
  cudaDevAttrComputePreemptionSupported = 90,
  cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrHostRegisterSupported = 99,
  cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100,
  cudaDevAttrDirectManagedMemAccessFromHost = 101,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrMaxPersistingL2CacheSize = 108,
  cudaDevAttrMaxAccessPolicyWindowSize = 109,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrClusterLaunch = 120,
  cudaDevAttrIpcEventSupport = 125,
};
// How the host waits for the device, and what device memory may be: hints.
#define cudaDeviceScheduleAuto 0
#define cudaDeviceScheduleSpin 1
#define cudaDeviceScheduleYield 2
#define cudaDeviceScheduleBlockingSync 4
#define cudaDeviceBlockingSync 4
#define cudaDeviceMapHost 8
#define cudaDeviceLmemResizeToMax 16
enum cudaLimit { cudaLimitStackSize = 0, cudaLimitPrintfFifoSize = 1, cudaLimitMallocHeapSize = 2, cudaLimitPersistingL2CacheSize = 6 };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault = 0, cudaSharedMemBankSizeFourByte = 1, cudaSharedMemBankSizeEightByte = 2 };
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
// The banks of an H200 have four bytes, whatever a program asks for.
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return emulator::synchronize(); }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) { *config = cudaSharedMemBankSizeFourByte; return emulator::synchronize(); }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return emulator::synchronize(); }
inline cudaError_t cudaDeviceReset() { return emulator::synchronize(); }
inline cudaError_t cudaCtxResetPersistingL2Cache() { return emulator::synchronize(); }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return emulator::synchronize(); }
// The emulated device is the only one, and none is its own peer.
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return emulator::give(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return emulator::give(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
#pragma GCC visibility pop
