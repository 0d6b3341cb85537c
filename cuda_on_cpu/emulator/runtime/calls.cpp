// Host calls of the emulated CUDA runtime: device properties, streams, events, attributes of kernels, and memory calls.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "emulator/host.h"
#include "emulator/memory.h"

using Clock = std::chrono::steady_clock;

struct CUstream_st {
  unsigned flags = 0;
};
struct CUevent_st {
  bool timed = true, recorded = false;
  Clock::time_point at{};
  cudaStream_t stream = nullptr;
  std::uint64_t position = 0;  // how much of the stream's late work comes before it
};

namespace emulator {
namespace {

// The live handles of one kind, such as streams. A call with any other handle returns an error and does not crash.
template <class T>
class Handles {
 public:
  void add(T* handle) {
    std::lock_guard lock(mutex_);
    live_.insert(handle);
  }
  bool remove(T* handle) {
    std::lock_guard lock(mutex_);
    return live_.erase(handle);
  }
  bool has(T* handle) {
    std::lock_guard lock(mutex_);
    return live_.count(handle);
  }

 private:
  std::mutex mutex_;
  std::set<T*> live_;
};

Handles<CUstream_st>& streams() {
  static auto* all = new Handles<CUstream_st>;
  return *all;
}
Handles<CUevent_st>& events() {
  static auto* all = new Handles<CUevent_st>;
  return *all;
}

bool is_stream(cudaStream_t stream) { return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread || streams().has(stream); }

std::mutex granted_mutex;
std::map<std::string, std::size_t>& granted() {
  static auto* all = new std::map<std::string, std::size_t>;
  return *all;
}

std::mutex known_mutex;
std::map<const void*, Known>& known_kernels() {
  static auto* all = new std::map<const void*, Known>;
  return *all;
}

}  // namespace

void remember(const void* kernel, const Known& known) {
  std::lock_guard lock(known_mutex);
  Known& kept = known_kernels()[kernel];
  if (!kept.launch || !*kept.name) kept = known;  // a name replaces that of a variable, which is empty
}

Known known_kernel(const void* kernel) {
  std::lock_guard lock(known_mutex);
  const auto found = known_kernels().find(kernel);
  return found == known_kernels().end() ? Known{} : found->second;
}

// Returns the kernel's name without namespaces and template arguments. Returns "" if `text` is a variable, which the
// rewritten source puts in brackets.
std::string kernel_name(const std::string& text) {
  if (text.empty() || text[0] == '(') return "";
  const std::string name = text.substr(0, text.find('<'));
  const auto start = name.find_last_of(": ");
  return start == std::string::npos || start + 1 == name.size() ? name : name.substr(start + 1);
}

// ------------------------------------------------------------------------------------------------ device

cudaError_t properties(cudaDeviceProp* out, int device) {
  if (device != 0) return give(cudaErrorInvalidDevice);
  *out = {};
  std::snprintf(out->name, sizeof out->name, "emulated CUDA device");
  out->totalGlobalMem = limits::kGlobalBytes;
  out->sharedMemPerBlock = limits::kSharedBytes;
  out->sharedMemPerBlockOptin = limits::kSharedBytesAsked;
  out->sharedMemPerMultiprocessor = limits::kSharedBytesPerMultiprocessor;
  out->reservedSharedMemPerBlock = limits::kSharedBytesReserved;
  out->regsPerBlock = out->regsPerMultiprocessor = limits::kRegisters;
  out->warpSize = 32;
  out->memPitch = 0x7FFFFFFF;
  out->maxThreadsPerBlock = limits::kThreadsPerBlock;
  out->maxThreadsDim[0] = limits::kBlockX, out->maxThreadsDim[1] = limits::kBlockY, out->maxThreadsDim[2] = limits::kBlockZ;
  out->maxGridSize[0] = limits::kGridX, out->maxGridSize[1] = limits::kGridY, out->maxGridSize[2] = limits::kGridZ;
  out->totalConstMem = limits::kConstantBytes;
  out->major = limits::kMajor, out->minor = limits::kMinor;
  out->textureAlignment = 512, out->texturePitchAlignment = 32;
  out->multiProcessorCount = limits::kMultiprocessors;
  out->canMapHostMemory = out->concurrentKernels = out->unifiedAddressing = out->managedMemory = out->cooperativeLaunch = 1;
  out->ECCEnabled = out->globalL1CacheSupported = out->localL1CacheSupported = out->clusterLaunch = 1;
  out->computePreemptionSupported = out->concurrentManagedAccess = 1;
  out->persistingL2CacheMaxSize = limits::kL2Bytes / 8 * 5, out->accessPolicyMaxWindowSize = 128 << 20;
  out->asyncEngineCount = 3;
  out->memoryBusWidth = limits::kBusBits;
  out->l2CacheSize = limits::kL2Bytes;
  out->maxThreadsPerMultiProcessor = limits::kThreadsPerMultiprocessor;
  out->maxBlocksPerMultiProcessor = limits::kBlocksPerMultiprocessor;
  out->canUseHostPointerForRegisteredMem = out->hostRegisterSupported = 1;
  out->memoryPoolsSupported = out->streamPrioritiesSupported = 1;
  return synchronize();
}

cudaError_t attribute(int* out, cudaDeviceAttr which, int device) {
  if (device != 0) return give(cudaErrorInvalidDevice);
  static const std::map<int, int> values{
      {cudaDevAttrMaxThreadsPerBlock, limits::kThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, limits::kBlockX},
      {cudaDevAttrMaxBlockDimY, limits::kBlockY},
      {cudaDevAttrMaxBlockDimZ, limits::kBlockZ},
      {cudaDevAttrMaxGridDimX, limits::kGridX},
      {cudaDevAttrMaxGridDimY, limits::kGridY},
      {cudaDevAttrMaxGridDimZ, limits::kGridZ},
      {cudaDevAttrMaxSharedMemoryPerBlock, limits::kSharedBytes},
      {cudaDevAttrTotalConstantMemory, limits::kConstantBytes},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxPitch, 0x7FFFFFFF},
      {cudaDevAttrMaxRegistersPerBlock, limits::kRegisters},
      {cudaDevAttrClockRate, limits::kClockKilohertz},
      {cudaDevAttrTextureAlignment, 512},
      {cudaDevAttrGpuOverlap, 1},
      {cudaDevAttrMultiProcessorCount, limits::kMultiprocessors},
      {cudaDevAttrKernelExecTimeout, 0},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrComputeMode, cudaComputeModeDefault},
      {cudaDevAttrSurfaceAlignment, 512},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrEccEnabled, 1},
      {cudaDevAttrPciBusId, 0},
      {cudaDevAttrPciDeviceId, 0},
      {cudaDevAttrTccDriver, 0},
      {cudaDevAttrMemoryClockRate, limits::kMemoryClockKilohertz},
      {cudaDevAttrGlobalMemoryBusWidth, limits::kBusBits},
      {cudaDevAttrL2CacheSize, limits::kL2Bytes},
      {cudaDevAttrMaxThreadsPerMultiProcessor, limits::kThreadsPerMultiprocessor},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrPciDomainId, 0},
      {cudaDevAttrTexturePitchAlignment, 32},
      {cudaDevAttrComputeCapabilityMajor, limits::kMajor},
      {cudaDevAttrComputeCapabilityMinor, limits::kMinor},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrGlobalL1CacheSupported, 1},
      {cudaDevAttrLocalL1CacheSupported, 1},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, limits::kSharedBytesPerMultiprocessor},
      {cudaDevAttrMaxRegistersPerMultiprocessor, limits::kRegisters},
      {cudaDevAttrManagedMemory, 1},
      {cudaDevAttrIsMultiGpuBoard, 0},
      {cudaDevAttrMultiGpuBoardGroupID, 0},
      {cudaDevAttrHostNativeAtomicSupported, 0},
      {cudaDevAttrSingleToDoublePrecisionPerfRatio, 2},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrConcurrentManagedAccess, 1},
      {cudaDevAttrComputePreemptionSupported, 1},
      {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, limits::kSharedBytesAsked},
      {cudaDevAttrHostRegisterSupported, 1},
      {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0},
      {cudaDevAttrDirectManagedMemAccessFromHost, 0},
      {cudaDevAttrMaxBlocksPerMultiprocessor, limits::kBlocksPerMultiprocessor},
      {cudaDevAttrMaxPersistingL2CacheSize, limits::kL2Bytes / 8 * 5},
      {cudaDevAttrMaxAccessPolicyWindowSize, 128 << 20},
      {cudaDevAttrReservedSharedMemoryPerBlock, limits::kSharedBytesReserved},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrClusterLaunch, 1},
  };
  const auto found = values.find(which);
  if (found == values.end()) return give(cudaErrorInvalidValue);
  *out = found->second;
  return synchronize();
}

// ------------------------------------------------------------------------------------- streams and events

cudaError_t create_stream(cudaStream_t* stream, unsigned flags) {
  if (synchronize()) return synchronize();
  streams().add(*stream = new CUstream_st{flags});
  return cudaSuccess;
}

bool is_created(cudaStream_t stream) { return streams().has(stream); }
bool is_blocking(cudaStream_t stream) { return streams().has(stream) && !(stream->flags & cudaStreamNonBlocking); }

cudaError_t destroy_stream(cudaStream_t stream) {
  if (!streams().has(stream)) return give(cudaErrorInvalidResourceHandle);
  finish(stream);
  streams().remove(stream);
  delete stream;
  return synchronize();
}

cudaError_t synchronize(cudaStream_t stream) { return is_stream(stream) ? synchronize() : give(cudaErrorInvalidResourceHandle); }

cudaError_t create_event(cudaEvent_t* event, unsigned flags) {
  if (synchronize()) return synchronize();
  events().add(*event = new CUevent_st{!(flags & cudaEventDisableTiming)});
  return cudaSuccess;
}

cudaError_t destroy_event(cudaEvent_t event) {
  if (!events().remove(event)) return give(cudaErrorInvalidResourceHandle);
  delete event;
  return synchronize();
}

cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) {
  if (!events().has(event) || !is_stream(stream)) return give(cudaErrorInvalidResourceHandle);
  if (captured_record(event, stream)) return synchronize();
  event->recorded = true;
  event->at = Clock::now();
  event->stream = stream, event->position = position_in(stream);
  event_recorded(event, stream);
  return synchronize();
}

cudaError_t check_event(cudaEvent_t event) { return events().has(event) ? synchronize() : give(cudaErrorInvalidResourceHandle); }

cudaError_t wait_for(cudaStream_t stream, cudaEvent_t event) {
  if (check_event(event)) return check_event(event);
  cudaError_t error = cudaSuccess;
  if (captured_wait(stream, event, &error)) return error;
  if (synchronize(stream)) return synchronize(stream);
  stream_waits(stream, event);
  if (late_works && event->recorded) {
    const auto wait = [from = event->stream, until = event->position] { return do_late_work_until(from, until), synchronize(); };
    return defers(stream) ? defer(stream, wait) : wait();
  }
  return cudaSuccess;
}

// The host cannot wait for work that a capture only records.
cudaError_t synchronize_event(cudaEvent_t event) {
  if (const cudaError_t error = refuse_in_capture()) return error;
  if (check_event(event)) return check_event(event);
  if (late_works && event->recorded) do_late_work_until(event->stream, event->position);
  host_waited(event);
  return synchronize();
}

cudaError_t synchronize_stream(cudaStream_t stream) {
  const cudaError_t error = captures(stream) ? refuse_in_capture() : synchronize(stream);
  if (error) return error;
  finish(stream);
  host_waited(stream);
  return synchronize();
}

cudaError_t synchronize_device() {
  if (const cudaError_t error = refuse_in_capture()) return error;
  do_all_late_work();
  host_waited_for_all();
  return synchronize();
}

cudaError_t elapsed_ms(float* ms, cudaEvent_t start, cudaEvent_t end) {
  for (cudaEvent_t event : {start, end})
    if (!events().has(event) || !event->recorded || !event->timed) return give(cudaErrorInvalidResourceHandle);
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return synchronize();
}

// ---------------------------------------------------------------------------------------------- functions

// A launch through a variable can launch any kernel. So it may use the largest size that any kernel was granted.
std::size_t dynamic_shared_limit(const char* kernel) {
  std::lock_guard lock(granted_mutex);
  std::size_t limit = limits::kSharedBytes;
  const std::string wanted = kernel_name(kernel);
  for (const auto& [name, bytes] : granted())
    if (name == wanted || name.empty() || wanted.empty()) limit = std::max(limit, bytes);
  return limit;
}

namespace {
std::set<std::string> large_clusters;  // the kernels that may have them
}  // namespace

// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#thread-block-clusters: 8 blocks everywhere, 16 on an H200.
unsigned cluster_limit(const char* kernel) {
  std::lock_guard lock(granted_mutex);
  const std::string wanted = kernel_name(kernel);
  const bool large = std::any_of(large_clusters.begin(), large_clusters.end(), [&](const std::string& name) { return name == wanted || name.empty() || wanted.empty(); });
  return large ? 16 : 8;
}

cudaError_t set_attribute(const char* kernel, cudaFuncAttribute which, int value) {
  if (which == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    std::lock_guard lock(granted_mutex);
    value ? static_cast<void>(large_clusters.insert(kernel_name(kernel))) : static_cast<void>(large_clusters.erase(kernel_name(kernel)));
    return synchronize();
  }
  if (which == cudaFuncAttributeClusterSchedulingPolicyPreference) return give(value >= 0 && value <= 2 ? cudaSuccess : cudaErrorInvalidValue);
  if (which == cudaFuncAttributePreferredSharedMemoryCarveout) return give(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || static_cast<std::size_t>(value) > limits::kSharedBytesAsked)
    return give(cudaErrorInvalidValue);
  std::lock_guard lock(granted_mutex);
  granted()[kernel] = static_cast<std::size_t>(value);
  return synchronize();
}

cudaError_t attributes(cudaFuncAttributes* out) {
  *out = {};
  out->maxThreadsPerBlock = limits::kThreadsPerBlock;
  out->numRegs = 32;
  out->ptxVersion = out->binaryVersion = 10 * limits::kMajor + limits::kMinor;
  out->maxDynamicSharedSizeBytes = limits::kSharedBytes;
  return synchronize();
}

int resident_blocks(int threads, std::size_t shared_bytes) {
  if (threads < 1 || threads > static_cast<int>(limits::kThreadsPerBlock) || shared_bytes > limits::kSharedBytesAsked) return 0;
  const int warps = (threads + 31) / 32, by_threads = limits::kThreadsPerMultiprocessor / (warps * 32);
  const int by_shared = static_cast<int>(limits::kSharedBytesPerMultiprocessor / (shared_bytes + limits::kSharedBytesReserved));
  return std::min({limits::kBlocksPerMultiprocessor, by_threads, by_shared});
}

// ------------------------------------------------------------------------------------------------- memory

cudaError_t copy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return give(cudaErrorInvalidPitchValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind);
    if (error) return error;
  }
  return synchronize();
}

cudaError_t set_2d(void* address, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  if (width > pitch) return give(cudaErrorInvalidPitchValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = set(static_cast<char*>(address) + row * pitch, value, width);
    if (error) return error;
  }
  return synchronize();
}

cudaError_t copy_symbol(void* symbol, std::size_t bytes, std::size_t offset, void* other, std::size_t count, bool to_symbol, cudaMemcpyKind kind) {
  const bool other_on_device = kind == cudaMemcpyDeviceToDevice;
  if (offset + count > bytes || (other_on_device && !is_device(other))) return give(cudaErrorInvalidValue);
  if (kind != cudaMemcpyDefault && !other_on_device && kind != (to_symbol ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost))
    return give(cudaErrorInvalidMemcpyDirection);
  if (synchronize()) return synchronize();
  if (is_dry() && !to_symbol) end_dry_run();
  char* place = static_cast<char*>(symbol) + offset;
  std::memmove(to_symbol ? place : other, to_symbol ? other : place, count);
  return cudaSuccess;
}

cudaError_t pointer_attributes(cudaPointerAttributes* out, const void* address) {
  const bool device = is_device(address);
  *out = {is_pinned(address) ? cudaMemoryTypeHost : device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0, device ? const_cast<void*>(address) : nullptr,
          device && !is_pinned(address) ? nullptr : const_cast<void*>(address)};
  return synchronize();
}

cudaError_t memory_info(std::size_t* free, std::size_t* total) {
  if (is_dry()) end_dry_run();  // the memory of the dry run is not that of a GPU
  *free = limits::kFreeBytes, *total = limits::kGlobalBytes;
  return synchronize();
}

}  // namespace emulator
