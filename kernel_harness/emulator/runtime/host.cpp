// The error state and the host calls of the emulated CUDA runtime.
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
cudaError_t pending = cudaSuccess;  // cleared by cudaGetLastError
cudaError_t sticky = cudaSuccess;   // the context is broken: nothing clears it
std::string detail;

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
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
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
  if (error) pending = error;
  return error;
}

namespace {
bool refuse(const Launch& launch, cudaError_t error) {
  if (sanitize::on) sanitize::refused(launch, error_string(error));
  give(error);
  return false;
}
}  // namespace

bool valid(const Launch& launch) {
  ++launches;  // a launch that fails is one, too
  const dim3& block = launch.block;
  if (peek_error() && sticky) return false;
  if (!within(launch.grid, limits::kGridX, limits::kGridY, limits::kGridZ) ||
      !within(block, limits::kBlockX, limits::kBlockY, limits::kBlockZ) || block.x * block.y * block.z > limits::kThreadsPerBlock)
    return refuse(launch, cudaErrorInvalidConfiguration);
  if (launch.shared_bytes > dynamic_shared_limit(launch.kernel)) return refuse(launch, cudaErrorInvalidValue);
  const auto threads = static_cast<int>(block.x * block.y * block.z);
  if (launch.cooperative && static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z >
                                static_cast<std::uint64_t>(resident_blocks(threads, launch.shared_bytes)) * limits::kMultiprocessors)
    return refuse(launch, cudaErrorCooperativeLaunchTooLarge);
  return true;
}

void fail(cudaError_t error, const char* text) {
  std::lock_guard lock(mutex);
  if (sticky) return;
  sticky = error;
  detail = text;
}

bool fail_host_pointer(const char* kernel, unsigned position) {
  char text[256];
  std::snprintf(text, sizeof text, "argument %u of %s is host memory, which a kernel cannot reach", position + 1, kernel);
  fail(cudaErrorIllegalAddress, text);
  return false;
}

const char* failure_detail() { return detail.c_str(); }

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
const char* error_string(cudaError_t error) { return describe(error).text; }

cudaError_t allocate(void** address, std::size_t bytes) {
  if (synchronize()) return sticky;
  *address = bytes ? allocate(bytes) : nullptr;
  return give(bytes && !*address ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t free_memory(void* address) { return give(!address || release(address) ? cudaSuccess : cudaErrorInvalidValue); }

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (bytes && ((to_device && !is_device(to)) || (from_device && !is_device(from)))) return give(cudaErrorInvalidValue);
  if (synchronize()) return sticky;
  std::memmove(to, from, bytes);
  if (sanitize::on && to_device) sanitize::written_by_host(to, bytes);
  return cudaSuccess;
}

cudaError_t set(void* address, int value, std::size_t bytes) {
  if (bytes && !is_device(address)) return give(cudaErrorInvalidValue);
  if (synchronize()) return sticky;
  std::memset(address, value, bytes);
  if (sanitize::on) sanitize::written_by_host(address, bytes);
  return cudaSuccess;
}

cudaError_t set_device(int device) { return give(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

}  // namespace emulator

// For the process that hosts the candidate: 0, or the sticky error's number, with its words.
extern "C" int emulator_synchronize() { return emulator::synchronize(); }
extern "C" const char* emulator_failure() {
  static thread_local std::string text;
  text = std::string("CUDA error: ") + emulator::error_string(emulator::synchronize());
  if (*emulator::failure_detail()) text += std::string(" (") + emulator::failure_detail() + ")";
  return text.c_str();
}
