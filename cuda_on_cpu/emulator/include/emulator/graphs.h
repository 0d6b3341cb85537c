// Stream capture and graphs. A graph is the list of what was captured, in program order, which is one of the orders that
// its dependencies allow.
#pragma once
#include <cstddef>
#include <functional>

#include "emulator/host.h"
#include "emulator/late_work.h"

typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
enum cudaGraphNodeType {
  cudaGraphNodeTypeKernel = 0,
  cudaGraphNodeTypeMemcpy = 1,
  cudaGraphNodeTypeMemset = 2,
  cudaGraphNodeTypeHost = 3,
  cudaGraphNodeTypeGraph = 4,
  cudaGraphNodeTypeEmpty = 5,
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };

namespace emulator {

// Returns whether the work of `stream` is being captured. A call that CUDA forbids during a capture also returns true;
// `record` then returns its error.
bool captures(cudaStream_t stream);
cudaError_t record(cudaStream_t stream, Work work, cudaGraphNodeType type = cudaGraphNodeTypeKernel);
// Does the work of a stream, now or later, or records it.
template <class W>
cudaError_t in_stream(cudaStream_t stream, W work, cudaGraphNodeType type = cudaGraphNodeTypeKernel) {
  if (captures(stream)) return record(stream, work, type);
  if (defers(stream)) return defer(stream, work, nullptr, 0, false);
  return finish(stream), work();
}
// The same for work that uses memory of the host which is not pinned. The host waits for it.
template <class W>
cudaError_t at_once_in_stream(cudaStream_t stream, W work, cudaGraphNodeType type = cudaGraphNodeTypeMemcpy) { return captures(stream) ? record(stream, work, type) : (finish(stream), work()); }
// Functions of the runtime library and not of this header, because each source would compile their std::function again.
cudaError_t copy_in_stream(cudaStream_t stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t set_in_stream(cudaStream_t stream, void* address, int value, std::size_t bytes);
cudaError_t copy_2d_in_stream(cudaStream_t stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind);
cudaError_t set_2d_in_stream(cudaStream_t stream, void* address, std::size_t pitch, int value, std::size_t width, std::size_t height);
cudaError_t call_in_stream(cudaStream_t stream, void (*function)(void* data), void* data);
cudaError_t free_in_stream(cudaStream_t stream, void* address);
// Returns the error of a call that a capture forbids, and invalidates the capture; cudaSuccess if there is no capture.
cudaError_t refuse_in_capture();

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t capture_status(cudaStream_t stream, cudaStreamCaptureStatus* status);
// Records or awaits an event in a capture. Return false if neither the stream nor the event belongs to a capture.
bool captured_record(cudaEvent_t event, cudaStream_t stream);
bool captured_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t* error);
cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t graph);
// Returns torch's current stream: during a capture by torch.cuda.CUDAGraph the stream that is captured, otherwise null.
cudaStream_t torch_stream();
// `file` and `line` are the place of the call in the source.
cudaError_t launch_graph(cudaGraphExec_t graph, cudaStream_t stream, const char* file = "", int line = 0);
cudaError_t destroy_graph(cudaGraph_t graph);
cudaError_t destroy_graph(cudaGraphExec_t graph);

}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) { return emulator::begin_capture(stream, mode); }
// The rewritten source calls this function if it may capture a stream of torch, whose operators are not recorded.
template <class... A>
cudaError_t emulator_capture_beside_torch(A...) {
  static_assert(sizeof...(A) > 2, "emulator_unsupported: the capture of a stream of torch");
  return cudaErrorNotSupported;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) { return emulator::end_capture(stream, graph); }
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) { return emulator::capture_status(stream, status); }
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) { *mode = cudaStreamCaptureModeGlobal; return emulator::synchronize(); }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long = 0) { return emulator::instantiate(out, graph); }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, cudaGraphNode_t*, char*, std::size_t) { return emulator::instantiate(out, graph); }
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long = 0) { return emulator::instantiate(out, graph); }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::launch_graph(graph, stream, file, line);
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return emulator::synchronize(); }
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return emulator::destroy_graph(graph); }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return emulator::destroy_graph(graph); }
#pragma GCC visibility pop
