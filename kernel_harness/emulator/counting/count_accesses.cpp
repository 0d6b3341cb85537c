// Counts the memory accesses of a candidate's library. This file is compiled into the library. An atomic exchange
// counts as a read and a write. A compare-and-swap counts as a write only, because an atomic load before it counts as
// the read.
#include "emulator/access_hooks.h"

#include "emulator/profile.h"

namespace emulator {
namespace {

inline void accessed(const void* address, std::size_t bytes, AccessKind kind, const void*) {
  if (only_reads(kind) || kind == AccessKind::kAtomicExchange) profile::touched(address, bytes, false);
  if (!only_reads(kind)) profile::touched(address, bytes, true);
}

inline void fenced() {}

}  // namespace
}  // namespace emulator
