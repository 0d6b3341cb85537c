// Streams and events. late_work.h says when the work of a stream is done.
#pragma once
#include "emulator/host.h"

enum : unsigned { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum : unsigned { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4 };
enum : unsigned { cudaEventWaitDefault = 0, cudaEventRecordDefault = 0 };
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))
// Streams of device code. A launch in one of them is reported when a kernel reaches it.
#define cudaStreamTailLaunch (reinterpret_cast<cudaStream_t>(3))
#define cudaStreamFireAndForget (reinterpret_cast<cudaStream_t>(4))
#define cudaStreamGraphTailLaunch (reinterpret_cast<cudaStream_t>(0x0100000000000000))
#define cudaStreamGraphFireAndForget (reinterpret_cast<cudaStream_t>(0x0200000000000000))
#define cudaStreamGraphFireAndForgetAsSibling (reinterpret_cast<cudaStream_t>(0x0300000000000000))
#define CUDART_CB  // the calling convention of callbacks, which matters on Windows only
typedef void (*cudaHostFn_t)(void* data);
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void* data);

namespace emulator {
cudaError_t create_stream(cudaStream_t* stream, unsigned flags = 0);
bool is_created(cudaStream_t stream);   // whether the program made it and has not destroyed it
bool is_blocking(cudaStream_t stream);  // whether the legacy stream waits for the stream, and the other way round
cudaError_t destroy_stream(cudaStream_t stream);
cudaError_t synchronize(cudaStream_t stream);  // also checks that the handle is a stream
cudaError_t create_event(cudaEvent_t* event, unsigned flags);
cudaError_t destroy_event(cudaEvent_t event);
cudaError_t record_event(cudaEvent_t event, cudaStream_t stream);
cudaError_t check_event(cudaEvent_t event);
cudaError_t wait_for(cudaStream_t stream, cudaEvent_t event);
cudaError_t synchronize_event(cudaEvent_t event);
cudaError_t synchronize_stream(cudaStream_t stream);
cudaError_t elapsed_ms(float* ms, cudaEvent_t start, cudaEvent_t end);
}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return emulator::create_stream(stream); }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { return emulator::create_stream(stream, flags); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) { return emulator::create_stream(stream, flags); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return emulator::destroy_stream(stream); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return emulator::synchronize_stream(stream); }
inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return emulator::synchronize_stream(stream); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) { return emulator::wait_for(stream, event); }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { *least = 0, *greatest = -5; return cudaSuccess; }
inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const cudaError_t error = emulator::synchronize(stream);
  return error ? error : emulator::call_in_stream(stream, function, data);
}
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  const cudaError_t error = emulator::synchronize(stream);
  return error ? error : emulator::at_once_in_stream(stream, [=] { return function(stream, cudaSuccess, data), emulator::synchronize(); }, cudaGraphNodeTypeHost);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return emulator::create_event(event, cudaEventDefault); }
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) { return emulator::create_event(event, flags); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) { return emulator::create_event(event, flags); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return emulator::destroy_event(event); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr) { return emulator::record_event(event, stream); }
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned = 0) { return emulator::record_event(event, stream); }
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) { return emulator::synchronize_event(event); }
inline cudaError_t cudaEventQuery(cudaEvent_t event) { return emulator::synchronize_event(event); }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) { return emulator::elapsed_ms(ms, start, end); }
#pragma GCC visibility pop
