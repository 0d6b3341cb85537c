// The error state of the emulated CUDA runtime, and its calls for launches, allocations and copies.
#include "emulator/host.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "emulator/memory.h"
#include "emulator/sanitize.h"
#include "emulator/scheduler.h"

namespace emulator {
namespace {

std::mutex mutex;
cudaError_t pending = cudaSuccess;  // the last error; cudaGetLastError clears it
cudaError_t sticky = cudaSuccess;   // an error that broke the context; nothing clears it
std::string detail;
cudaError_t refused_as = cudaSuccess;  // the error of the last launch that was refused, and the limit that it exceeded
std::string limit;

bool within(const dim3& v, unsigned x, unsigned y, unsigned z) {
  return v.x >= 1 && v.y >= 1 && v.z >= 1 && v.x <= x && v.y <= y && v.z <= z;
}

struct Description {
  cudaError_t error;
  const char *name, *text;
};
constexpr Description kDescriptions[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure", "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "cluster misconfiguration"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};

const Description& describe(cudaError_t error) {
  static constexpr Description unknown{cudaSuccess, "unrecognized error code", "unrecognized error code"};
  for (const auto& known : kDescriptions)
    if (known.error == error) return known;
  return unknown;
}

}  // namespace

cudaError_t give(cudaError_t error) {
  std::lock_guard lock(mutex);
  if (sticky) return sticky;
  if (error) {
    pending = error;
    limit.clear();  // it belongs to an earlier error
  }
  return error;
}

namespace {
bool refuse(const Launch& launch, cudaError_t error, const std::string& exceeded) {
  if (sanitize::on) sanitize::refused(launch, (describe(error).text + (exceeded.empty() ? exceeded : ": " + exceeded)).c_str());
  give(error);
  std::lock_guard lock(mutex);
  refused_as = error;
  limit = exceeded;
  return false;
}

std::string sizes(unsigned x, unsigned y, unsigned z) {
  return std::to_string(x) + "x" + std::to_string(y) + "x" + std::to_string(z);
}

// Says which limit a launch exceeds, or returns an empty text if its grid and its block are within all limits.
std::string exceeded(const Launch& launch) {
  using namespace limits;
  const dim3 &grid = launch.grid, &block = launch.block;
  if (!within(grid, kGridX, kGridY, kGridZ))
    return "the grid is " + sizes(grid.x, grid.y, grid.z) + ": at least 1x1x1 and at most " + sizes(kGridX, kGridY, kGridZ) + " is possible";
  if (!within(block, kBlockX, kBlockY, kBlockZ))
    return "the block is " + sizes(block.x, block.y, block.z) + ": at least 1x1x1 and at most " + sizes(kBlockX, kBlockY, kBlockZ) + " is possible";
  if (block.x * block.y * block.z > kThreadsPerBlock)
    return "the block is " + sizes(block.x, block.y, block.z) + ", which are " + std::to_string(block.x * block.y * block.z) +
           " threads: at most " + std::to_string(kThreadsPerBlock) + " are possible";
  return "";
}
}  // namespace

bool valid(const Launch& launch) {
  ++launches;  // a launch that fails counts, too
  const dim3& block = launch.block;
  if (peek_error() && sticky) return false;
  if (const std::string text = exceeded(launch); !text.empty()) return refuse(launch, cudaErrorInvalidConfiguration, text);
  if (const auto most = dynamic_shared_limit(launch.kernel); launch.shared_bytes > most)
    return refuse(launch, cudaErrorInvalidValue, "the launch asks for " + std::to_string(launch.shared_bytes) +
                  " bytes of dynamic shared memory: this kernel can have " + std::to_string(most) +
                  ", and more only by cudaFuncSetAttribute");
  if (const char* wrong = wrong_cluster(launch)) return refuse(launch, cudaErrorInvalidClusterSize, wrong);
  const auto threads = static_cast<int>(block.x * block.y * block.z);
  if (launch.cooperative && static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z >
                                static_cast<std::uint64_t>(resident_blocks(threads, launch.shared_bytes)) * limits::kMultiprocessors)
    return refuse(launch, cudaErrorCooperativeLaunchTooLarge, "");
  launched_threads += static_cast<std::uint64_t>(threads) * launch.grid.x * launch.grid.y * launch.grid.z;
  return true;
}

void fail(cudaError_t error, const char* text) {
  std::lock_guard lock(mutex);
  if (sticky) return;
  sticky = error;
  detail = text;
}

// A block beyond the kernel's launch bounds is a refused launch, not a broken context. cuLaunchKernel then returns
// CUDA_ERROR_INVALID_VALUE: https://github.com/facebookresearch/TensorComprehensions/pull/526
void end_with_fault(const Launch& launch) {
  const auto error = static_cast<cudaError_t>(last_fault_error());
  if (error == cudaErrorInvalidValue || error == cudaErrorInvalidClusterSize) refuse(launch, error, last_fault());
  else fail(error, last_fault());
}

bool fail_host_pointer(const char* kernel, unsigned position) {
  char text[256];
  std::snprintf(text, sizeof text, "argument %u of %s is host memory, which a kernel cannot access", position + 1, kernel);
  fail(cudaErrorIllegalAddress, text);
  return false;
}

cudaError_t take_error() {
  std::lock_guard lock(mutex);
  if (sticky) return sticky;
  const cudaError_t error = pending;
  pending = cudaSuccess;
  return error;
}

cudaError_t peek_error() {
  std::lock_guard lock(mutex);
  return sticky ? sticky : pending;
}

cudaError_t synchronize() {
  std::lock_guard lock(mutex);
  return sticky;
}

const char* error_name(cudaError_t error) { return describe(error).name; }

// The text includes the detail of the sticky error, or the limit that the last refused launch exceeded, because many
// programs throw nothing but this text.
const char* error_string(cudaError_t error) {
  static thread_local std::string text;
  std::lock_guard lock(mutex);
  const std::string& more = error == sticky ? detail : error == refused_as ? limit : std::string();
  if (!error || more.empty()) return describe(error).text;
  text = std::string(describe(error).text) + " (" + more + ")";
  return text.c_str();
}

cudaError_t allocate(void** address, std::size_t bytes) {
  if (synchronize()) return sticky;
  if (const cudaError_t error = refuse_in_capture()) return error;
  *address = bytes ? allocate(bytes) : nullptr;
  return give(bytes && !*address ? cudaErrorMemoryAllocation : cudaSuccess);
}

// Managed memory is zero on a GPU, too, when it is first used.
cudaError_t allocate_managed(void** address, std::size_t bytes) {
  const cudaError_t error = allocate(address, bytes);
  if (!error && *address) std::memset(*address, 0, bytes);
  return error;
}

cudaError_t free_memory(void* address) {
  do_all_late_work();  // cudaFree waits for the device
  freed_to_pool(address);
  return give(!address || release(address) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t allocate_pinned(void** address, std::size_t bytes) {
  const cudaError_t error = allocate(address, bytes);
  if (!error) pin(*address);
  return error;
}

cudaError_t copy_error(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (bytes && ((to_device && !is_device(to)) || (from_device && !is_device(from)))) return give(cudaErrorInvalidValue);
  return synchronize();
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = copy_error(to, from, bytes, kind)) return error;
  if (is_dry()) return is_device(from) && !is_device(to) ? end_dry_run() : (void)0, cudaSuccess;
  std::memmove(to, from, bytes);
  if (sanitize::on && is_device(to)) sanitize::written_by_host(to, bytes);
  return cudaSuccess;
}

cudaError_t set(void* address, int value, std::size_t bytes) {
  if (bytes && !is_device(address)) return give(cudaErrorInvalidValue);
  if (synchronize()) return sticky;
  if (is_dry()) return cudaSuccess;
  std::memset(address, value, bytes);
  if (sanitize::on) sanitize::written_by_host(address, bytes);
  return cudaSuccess;
}

cudaError_t set_device(int device) { return give(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

}  // namespace emulator

// Called by the worker process. emulator_synchronize waits for the device and returns an error's number, or 0.
// emulator_failure returns the message of the error that emulator_synchronize returned to this thread.
namespace {
thread_local cudaError_t failure = cudaSuccess;

const char* message(cudaError_t error) {  // until the thread's next message
  static thread_local std::string text;
  text = std::string("CUDA error: ") + emulator::error_string(error);
  return text.c_str();
}
}  // namespace
extern "C" int emulator_synchronize() {
  failure = emulator::synchronize_device();
  emulator::next_lateness();
  if (failure) emulator::take_error();  // torch clears the errors that it raises
  return failure;
}
extern "C" const char* emulator_failure() { return message(failure); }
// Called by the worker process. Returns the message of the last launch that was refused: if `raised`, of any, else only
// if no code has taken the error. Returns an empty text if there is none.
extern "C" const char* emulator_refused_launch(bool raised) {
  const cudaError_t refused = emulator::refused_as;
  return refused && (raised || refused == emulator::peek_error()) ? message(refused) : "";
}
