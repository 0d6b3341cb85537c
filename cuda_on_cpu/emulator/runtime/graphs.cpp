// Captures of streams, and the work that they record.
#include "emulator/host.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "emulator/memory.h"
#include "emulator/scheduler.h"
#include "emulator/streams.h"
#include "graph_state.h"

namespace emulator {
namespace {

// For each stream of a capture, how much of its work comes before a point: before an event, or the end of a stream.
using Clock = std::map<cudaStream_t, unsigned>;

struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode{};
  bool valid = true;
  std::map<cudaStream_t, Clock> streams;  // the streams that take part, with the work that comes before their ends
  std::vector<std::pair<Work, cudaGraphNodeType>> work;
};
struct CapturedEvent {
  std::weak_ptr<Capture> capture;
  Clock before;
};

std::atomic<int> running{0};  // the captures that have not ended
std::vector<std::shared_ptr<Capture>>& captures_now() {
  static auto* all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}
std::map<cudaEvent_t, CapturedEvent>& captured_events() {
  static auto* all = new std::map<cudaEvent_t, CapturedEvent>;
  return *all;
}

std::shared_ptr<Capture> capture_of(cudaStream_t stream) {
  for (const auto& capture : captures_now())
    if (capture->streams.count(stream)) return capture;
  return nullptr;
}

bool is_legacy(cudaStream_t stream) { return !stream || stream == cudaStreamLegacy; }

cudaError_t invalidate(cudaError_t error) {
  for (const auto& capture : captures_now()) capture->valid = false;
  return give(error);
}

}  // namespace
}  // namespace emulator

namespace emulator {

bool captures(cudaStream_t stream) {
  if (!running) return false;
  std::lock_guard lock(graphs_mutex);
  if (capture_of(stream)) return true;
  // The legacy stream waits for every blocking stream, so CUDA refuses work in it while one of them is captured.
  return is_legacy(stream) && std::any_of(captures_now().begin(), captures_now().end(), [](const auto& capture) { return is_blocking(capture->origin); });
}

cudaError_t record(cudaStream_t stream, Work work, cudaGraphNodeType type) {
  std::lock_guard lock(graphs_mutex);
  const auto capture = capture_of(stream);
  if (!capture) return invalidate(cudaErrorStreamCaptureImplicit);
  if (!capture->valid) return give(cudaErrorStreamCaptureInvalidated);
  ++capture->streams[stream][stream];
  capture->work.emplace_back(std::move(work), type);
  return synchronize();
}

cudaError_t refuse_in_capture() {
  if (!running) return cudaSuccess;
  std::lock_guard lock(graphs_mutex);
  const bool relaxed = std::all_of(captures_now().begin(), captures_now().end(), [](const auto& each) { return each->mode == cudaStreamCaptureModeRelaxed; });
  return relaxed ? cudaSuccess : invalidate(cudaErrorStreamCaptureUnsupported);
}

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (synchronize(stream)) return synchronize(stream);
  if (is_legacy(stream)) return give(cudaErrorStreamCaptureUnsupported);
  std::lock_guard lock(graphs_mutex);
  if (capture_of(stream)) return give(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->streams[stream];
  captures_now().push_back(capture);
  ++running;
  return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  std::lock_guard lock(graphs_mutex);
  *graph = nullptr;
  const auto capture = capture_of(stream);
  if (!capture) return give(cudaErrorIllegalState);
  if (capture->origin != stream) return give(cudaErrorStreamCaptureUnmatched);
  std::erase(captures_now(), capture);
  --running;
  if (!capture->valid) return give(cudaErrorStreamCaptureInvalidated);
  Clock& joined = capture->streams[stream];
  for (auto& [other, clock] : capture->streams)
    if (joined[other] < clock[other]) return give(cudaErrorStreamCaptureUnjoined);
  live<CUgraph_st>().insert(*graph = new CUgraph_st);
  for (auto& [work, type] : capture->work) {  // each node of a captured graph depends on the one before it
    auto node = std::make_unique<CUgraphNode_st>(type, std::move(work));
    if (!(*graph)->nodes.empty()) node->before.push_back((*graph)->nodes.back().get());
    (*graph)->nodes.push_back(std::move(node));
  }
  return synchronize();
}

cudaError_t capture_status(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  std::lock_guard lock(graphs_mutex);
  const auto capture = capture_of(stream);
  *status = !capture ? cudaStreamCaptureStatusNone : capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  return synchronize();
}

bool captured_record(cudaEvent_t event, cudaStream_t stream) {
  std::lock_guard lock(graphs_mutex);
  const auto capture = running ? capture_of(stream) : nullptr;
  if (capture) captured_events()[event] = {capture, capture->streams[stream]};
  else captured_events().erase(event);
  return capture != nullptr;
}

bool captured_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t* error) {
  std::lock_guard lock(graphs_mutex);
  if (!running) return false;
  *error = synchronize();
  const auto found = captured_events().find(event);
  const auto capture = found == captured_events().end() ? nullptr : found->second.capture.lock();
  const auto own = capture_of(stream);
  if (!capture && !own) return false;
  if (!capture) *error = invalidate(cudaErrorStreamCaptureIsolation);  // a captured stream waits for work outside
  else if (own && own != capture) *error = invalidate(cudaErrorStreamCaptureMerge);
  else if (is_legacy(stream)) *error = invalidate(cudaErrorStreamCaptureImplicit);
  else
    for (auto& [other, position] : found->second.before) {
      // A stream whose work begins here counts as unjoined, even if it does nothing.
      if (!capture->streams.count(stream)) capture->streams[stream][stream] = 1;
      unsigned& known = capture->streams[stream][other];
      known = std::max(known, position);
    }
  if (!*error && capture && !capture->streams.count(stream)) capture->streams[stream][stream] = 1;
  return true;
}

// A copy from or to memory of the host that is not pinned is done at once: CUDA copies it to a place of its own first, or
// waits. A copy to pinned memory is late in every stream.
cudaError_t copy_in_stream(cudaStream_t stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = copy_error(to, from, bytes, kind)) return error;
  const auto work = [=] { return copy(to, from, bytes, kind); };
  const bool to_host = is_pinned(to), from_host = is_pinned(from);
  if (captures(stream) || (!is_device(to) && !is_device(from))) return in_stream(stream, work, cudaGraphNodeTypeMemcpy);
  if (!is_device(to) || !is_device(from)) return at_once_in_stream(stream, work);
  if (!defers(stream) && !(to_host && defers_copies_to_host())) return in_stream(stream, work);
  if (!defers(stream)) finish(stream);
  return defer(stream, work, to_host ? to : from_host ? from : nullptr, bytes, to_host);
}
cudaError_t set_in_stream(cudaStream_t stream, void* address, int value, std::size_t bytes) {
  return in_stream(stream, [=] { return set(address, value, bytes); }, cudaGraphNodeTypeMemset);
}
cudaError_t copy_2d_in_stream(cudaStream_t stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  const bool on_device = is_device(to) && is_device(from);
  return (on_device ? &in_stream<Work> : &at_once_in_stream<Work>)(stream, [=] { return copy_2d(to, to_pitch, from, from_pitch, width, height, kind); }, cudaGraphNodeTypeMemcpy);
}
cudaError_t set_2d_in_stream(cudaStream_t stream, void* address, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return in_stream(stream, [=] { return set_2d(address, pitch, value, width, height); }, cudaGraphNodeTypeMemset);
}
cudaError_t call_in_stream(cudaStream_t stream, void (*function)(void* data), void* data) {
  // At once, because the host may wait for the function without a call of CUDA.
  return at_once_in_stream(stream, [=] { return function(data), synchronize(); }, cudaGraphNodeTypeHost);
}
cudaError_t free_in_stream(cudaStream_t stream, void* address) {
  // A graph may run again, so the memory stays.
  if (captures(stream)) return record(stream, [] { return cudaSuccess; });
  return in_stream(stream, [=] { return free_memory(address); });
}

}  // namespace emulator
