// The part of PyTorch's allocator from which extensions take workspaces.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

#pragma GCC visibility push(hidden)
namespace c10::cuda::CUDACachingAllocator {
inline void* raw_alloc(size_t bytes) {
  void* address = emulator::allocate(bytes);  // allowed during a capture, unlike cudaMalloc
  TORCH_CHECK_WITH(OutOfMemoryError, address, "CUDA out of memory. Tried to allocate ", bytes, " bytes.");
  return address;
}
inline void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* address) { C10_CUDA_CHECK(cudaFreeAsync(address, CUDAStream())); }
inline Allocator* get() { return GetAllocator(kCUDA); }
inline void recordStream(const DataPtr&, CUDAStream) {}
inline void emptyCache() {}
}  // namespace c10::cuda::CUDACachingAllocator
#pragma GCC visibility pop
