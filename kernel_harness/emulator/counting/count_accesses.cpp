// Part of a candidate's library that is to be counted: its accesses of memory. An exchange reads and writes; who
// compares has read before.
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
