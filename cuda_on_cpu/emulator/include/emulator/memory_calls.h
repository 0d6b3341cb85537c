// Memory calls for pitched memory, symbols, pools, managed memory and pinned memory. host.h has the simple calls.
#pragma once
#include <cstddef>

#include "emulator/host.h"
#include "emulator/memory.h"

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
enum cudaMemLocationType { cudaMemLocationTypeInvalid = 0, cudaMemLocationTypeNone = 0, cudaMemLocationTypeDevice = 1, cudaMemLocationTypeHost = 2, cudaMemLocationTypeHostNuma = 3, cudaMemLocationTypeHostNumaCurrent = 4 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
enum : unsigned { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2 };
enum : unsigned { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum : unsigned { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };

namespace emulator {
cudaError_t copy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind);
cudaError_t set_2d(void* address, std::size_t pitch, int value, std::size_t width, std::size_t height);
cudaError_t copy_symbol(void* symbol, std::size_t bytes, std::size_t offset, void* host, std::size_t count, bool to_symbol, cudaMemcpyKind kind);
cudaError_t pointer_attributes(cudaPointerAttributes* out, const void* address);
cudaError_t allocate_pinned(void** address, std::size_t bytes);
cudaError_t allocate_managed(void** address, std::size_t bytes);
cudaError_t memory_info(std::size_t* free, std::size_t* total);
}  // namespace emulator

#pragma GCC visibility push(hidden)
// Memory that a graph frees is kept for the graph's next launch.
inline cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) { return emulator::free_in_stream(stream, address); }
template <class T>
cudaError_t cudaMallocManaged(T** address, std::size_t bytes, unsigned = cudaMemAttachGlobal) { return emulator::allocate_managed(reinterpret_cast<void**>(address), bytes); }
// Pinned memory is device memory here, because with unified addressing a kernel can read it.
template <class T>
cudaError_t cudaMallocHost(T** address, std::size_t bytes, unsigned = 0) { return emulator::allocate_pinned(reinterpret_cast<void**>(address), bytes); }
template <class T>
cudaError_t cudaHostAlloc(T** address, std::size_t bytes, unsigned) { return emulator::allocate_pinned(reinterpret_cast<void**>(address), bytes); }
inline cudaError_t cudaFreeHost(void* address) { return emulator::free_memory(address); }
inline cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) { emulator::adopt(address, bytes, true); return emulator::synchronize(); }
inline cudaError_t cudaHostUnregister(void* address) { emulator::forget(address); return emulator::synchronize(); }
template <class T>
cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) { *device = static_cast<T*>(host); return emulator::synchronize(); }
template <class T>
cudaError_t cudaMallocPitch(T** address, std::size_t* pitch, std::size_t width, std::size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return emulator::allocate(reinterpret_cast<void**>(address), *pitch * height);
}
inline cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  const cudaError_t error = emulator::copy_2d_in_stream(nullptr, to, to_pitch, from, from_pitch, width, height, kind);
  return emulator::finish(nullptr), error ? error : emulator::synchronize();
}
inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return emulator::copy_2d_in_stream(stream, to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t cudaMemset2D(void* address, std::size_t pitch, int value, std::size_t width, std::size_t height) { return emulator::set_2d(address, pitch, value, width, height); }
inline cudaError_t cudaMemset2DAsync(void* address, std::size_t pitch, int value, std::size_t width, std::size_t height, cudaStream_t stream = nullptr) {
  return emulator::set_2d_in_stream(stream, address, pitch, value, width, height);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, std::size_t count, std::size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return emulator::copy_symbol(const_cast<std::remove_const_t<T>*>(&symbol), sizeof symbol, offset, const_cast<void*>(from), count, true, kind);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, std::size_t count, std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return emulator::at_once_in_stream(stream, [=, &symbol] { return cudaMemcpyToSymbol(symbol, from, count, offset, kind); });
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t count, std::size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return emulator::copy_symbol(const_cast<std::remove_const_t<T>*>(&symbol), sizeof symbol, offset, to, count, false, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, std::size_t count, std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return emulator::at_once_in_stream(stream, [=, &symbol] { return cudaMemcpyFromSymbol(to, symbol, count, offset, kind); });
}
template <class T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  *address = const_cast<void*>(static_cast<const void*>(&symbol));
  emulator::adopt(*address, sizeof symbol);
  return emulator::synchronize();
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T& symbol) { *bytes = sizeof symbol; return emulator::synchronize(); }
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) { return emulator::pointer_attributes(out, address); }
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) { return emulator::memory_info(free, total); }
// Hints on where managed memory should be. CUDA 12 takes a device, and CUDA 13 a place.
#define cudaCpuDeviceId (-1)
#define cudaInvalidDeviceId (-2)
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly = 2,
  cudaMemAdviseSetPreferredLocation = 3,
  cudaMemAdviseUnsetPreferredLocation = 4,
  cudaMemAdviseSetAccessedBy = 5,
  cudaMemAdviseUnsetAccessedBy = 6,
};
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t = nullptr) { return emulator::synchronize(); }
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t = nullptr) { return emulator::synchronize(); }
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) { return emulator::synchronize(); }
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation) { return emulator::synchronize(); }
#pragma GCC visibility pop
