// Memory pools of the runtime. All memory comes from one place here, so a pool only counts what was taken from it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/host.h"

typedef struct CUmemPoolHandle_st* cudaMemPool_t;
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic = 2,
  cudaMemPoolReuseAllowInternalDependencies = 3,
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
  cudaMemPoolAttrReservedMemHigh = 6,
  cudaMemPoolAttrUsedMemCurrent = 7,
  cudaMemPoolAttrUsedMemHigh = 8,
};
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid = 0, cudaMemAllocationTypePinned = 1, cudaMemAllocationTypeManaged = 2 };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone = 0, cudaMemHandleTypePosixFileDescriptor = 1, cudaMemHandleTypeWin32 = 2, cudaMemHandleTypeWin32Kmt = 4, cudaMemHandleTypeFabric = 8 };
enum cudaMemAccessFlags { cudaMemAccessFlagsProtNone = 0, cudaMemAccessFlagsProtRead = 1, cudaMemAccessFlagsProtReadWrite = 3 };
struct cudaMemAccessDesc {
  cudaMemLocation location;
  cudaMemAccessFlags flags;
};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};

namespace emulator {
cudaError_t device_pool(cudaMemPool_t* pool, int device, bool own);  // the default pool, or the one set last
cudaError_t set_device_pool(int device, cudaMemPool_t pool);
cudaError_t create_pool(cudaMemPool_t* pool, const cudaMemPoolProps* wanted);
cudaError_t destroy_pool(cudaMemPool_t pool);
cudaError_t set_pool(cudaMemPool_t pool, cudaMemPoolAttr which, void* value);
cudaError_t get_pool(cudaMemPool_t pool, cudaMemPoolAttr which, void* value);
cudaError_t check_pool(cudaMemPool_t pool);
// Allocates from a pool; null is the pool of the device. Throws in a capture of the stream. `file` and `line` are the place
// of the call.
cudaError_t allocate_from(void** address, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream, const char* file, int line);
void freed_to_pool(void* address);
}  // namespace emulator

#pragma GCC visibility push(hidden)
template <class T>
cudaError_t cudaMallocAsync(T** address, std::size_t bytes, cudaStream_t stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return emulator::allocate_from(reinterpret_cast<void**>(address), bytes, nullptr, stream, file, line); }
template <class T>
cudaError_t cudaMallocAsync(T** address, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return emulator::allocate_from(reinterpret_cast<void**>(address), bytes, pool, stream, file, line); }
template <class T>
cudaError_t cudaMallocFromPoolAsync(T** address, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return emulator::allocate_from(reinterpret_cast<void**>(address), bytes, pool, stream, file, line); }
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) { return emulator::device_pool(pool, device, false); }
inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return emulator::device_pool(pool, device, true); }
inline cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) { return emulator::set_device_pool(device, pool); }
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* wanted) { return emulator::create_pool(pool, wanted); }
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return emulator::destroy_pool(pool); }
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) { return emulator::set_pool(pool, which, value); }
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) { return emulator::get_pool(pool, which, value); }
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t) { return emulator::check_pool(pool); }
inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc*, std::size_t) { return emulator::check_pool(pool); }
inline cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation*) {
  *flags = cudaMemAccessFlagsProtReadWrite;
  return emulator::check_pool(pool);
}
#pragma GCC visibility pop
