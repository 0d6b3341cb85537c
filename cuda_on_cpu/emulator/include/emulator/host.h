// The CUDA runtime for host code. All work is complete before a call returns; CUDA allows this. A wrong call returns
// the error that it returns on a GPU, and the same errors are sticky.
#pragma once
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_API_H__
#include <cstddef>
#include <cstdint>

#include "emulator/dim3.h"

#define CUDART_VERSION 13000

// The errors have the numbers of CUDA. https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidPitchValue = 12,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorInvalidClusterSize = 912,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorGraphExecUpdateFailure = 910,
  cudaErrorUnknown = 999,
};
using cudaError = cudaError_t;

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

namespace emulator {

struct Launch;
// Returns whether a launch is within the limits of the emulated device. If not, sets the error of cudaGetLastError.
bool valid(const Launch& launch);
cudaError_t give(cudaError_t error);  // returns the error of one call, and keeps it for cudaGetLastError
const char* wrong_cluster(const Launch& launch);  // says why a launch cannot have its cluster, or returns null
bool fail_host_pointer(const char* kernel, unsigned position);
void end_with_fault(const Launch& launch);          // sets the error of a launch that had a fault
void fail(cudaError_t error, const char* detail);  // sets a sticky error; its text will include `detail`

cudaError_t take_error();
cudaError_t peek_error();
cudaError_t synchronize();
const char* error_name(cudaError_t error);
const char* error_string(cudaError_t error);
cudaError_t allocate(void** address, std::size_t bytes);
cudaError_t free_memory(void* address);
// Returns the error of a copy whose arguments are wrong, or cudaSuccess.
cudaError_t copy_error(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t set(void* address, int value, std::size_t bytes);
cudaError_t set_device(int device);
cudaError_t synchronize_device();

}  // namespace emulator

#include "emulator/graphs.h"

// The public functions are inline and hidden, so an extension never calls a real CUDA runtime in the same process.
#pragma GCC visibility push(hidden)
inline cudaError_t cudaGetLastError() { return emulator::take_error(); }
inline cudaError_t cudaPeekAtLastError() { return emulator::peek_error(); }
inline const char* cudaGetErrorName(cudaError_t error) { return emulator::error_name(error); }
inline const char* cudaGetErrorString(cudaError_t error) { return emulator::error_string(error); }
inline cudaError_t cudaDeviceSynchronize() { return emulator::synchronize_device(); }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return emulator::peek_error(); }
inline cudaError_t cudaSetDevice(int device) { return emulator::set_device(device); }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
template <class T>
cudaError_t cudaMalloc(T** address, std::size_t bytes) { return emulator::allocate(reinterpret_cast<void**>(address), bytes); }
inline cudaError_t cudaFree(void* address) { return emulator::free_memory(address); }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = emulator::copy_in_stream(nullptr, to, from, bytes, kind);
  return emulator::finish(nullptr), error ? error : emulator::synchronize();
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return emulator::copy_in_stream(stream, to, from, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream = nullptr) {
  return emulator::set_in_stream(stream, address, value, bytes);
}
inline cudaError_t cudaMemset(void* address, int value, std::size_t bytes) { return cudaMemsetAsync(address, value, bytes); }
#pragma GCC visibility pop

#include "emulator/functions.h"
#include "emulator/memory_calls.h"
#include "emulator/memory_pools.h"
#include "emulator/properties.h"
#include "emulator/streams.h"
