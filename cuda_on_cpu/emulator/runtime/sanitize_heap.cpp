// Memory that kernels allocate: a sanitized library is linked so that its calls of malloc, free, new and delete come here
// (flags.WRAPS_HEAP). In host code, the functions are those of the C and C++ libraries.
#include <cstdlib>
#include <cstring>
#include <new>

#include "sanitize_state.h"

namespace emulator::sanitize {
namespace {

void* allocate_in_kernel(std::size_t bytes) {
  if (!bytes) bytes = 1;  // each call gives another address
  void* address = allocate(bytes);
  if (address) std::memset(address, 0xFF, bytes);
  return address;
}

// Returns false if a kernel did not allocate the memory. A second release is a use after free.
bool release_in_kernel(void* address, const void* caller) {
  if (!inside || !address) return false;
  const Region* region = memory().at(static_cast<const char*>(address));
  if (!region || region->base != address || !region->owned || region->place != Place::kDevice) return false;
  if (!region->live) touch(address, 1, true, Manner::kPlain, caller);
  release(address);
  return true;
}

}  // namespace

extern "C" {
void* __wrap_malloc(std::size_t bytes) { return inside ? allocate_in_kernel(bytes) : std::malloc(bytes); }
void* __wrap__Znwm(std::size_t bytes) { return inside ? allocate_in_kernel(bytes) : ::operator new(bytes); }
void* __wrap__Znam(std::size_t bytes) { return inside ? allocate_in_kernel(bytes) : ::operator new[](bytes); }
void __wrap_free(void* address) {
  if (!release_in_kernel(address, __builtin_return_address(0))) std::free(address);
}
void __wrap__ZdlPv(void* address) {
  if (!release_in_kernel(address, __builtin_return_address(0))) ::operator delete(address);
}
void __wrap__ZdaPv(void* address) {
  if (!release_in_kernel(address, __builtin_return_address(0))) ::operator delete[](address);
}
void __wrap__ZdlPvm(void* address, std::size_t) {
  if (!release_in_kernel(address, __builtin_return_address(0))) ::operator delete(address);
}
void __wrap__ZdaPvm(void* address, std::size_t) {
  if (!release_in_kernel(address, __builtin_return_address(0))) ::operator delete[](address);
}
}  // extern "C"

}  // namespace emulator::sanitize
