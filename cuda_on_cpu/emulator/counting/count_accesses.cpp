// Counts the memory accesses and the basic blocks of a candidate's library. This file is compiled into the library.
#include "emulator/access_hooks.h"

#include "emulator/profile.h"

namespace emulator {
namespace {

profile::Access access_of(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
      return profile::Access::kLoad;
    case AccessKind::kVolatileRead:
      return profile::Access::kVolatileLoad;
    case AccessKind::kAtomicLoad:
      return profile::Access::kAtomicLoad;
    case AccessKind::kAtomicExchange:
      return profile::Access::kAtomicUpdate;
    case AccessKind::kAtomicCompare:
      return profile::Access::kAtomicCompare;
    default:
      return profile::Access::kStore;
  }
}

inline void accessed(const void* address, std::size_t bytes, AccessKind kind, const void* caller) {
  if (profile::on) profile::touched(address, bytes, access_of(kind), caller);
}

// The size is no power of two up to 16, or the alignment is smaller than the size and 8.
inline void accessed_range(const void* address, std::size_t bytes, AccessKind kind, const void* caller) {
  const bool aligned = (bytes & (bytes - 1)) || bytes > profile::kWidest;
  const std::uint32_t widest = aligned ? profile::kWidest : bytes < 8 ? static_cast<std::uint32_t>(bytes) / 2 : 4;
  if (profile::on) profile::touched(address, bytes, access_of(kind), caller, widest);
}

inline void fenced() {}

inline void entered() {
  if (profile::on) profile::called();
}

inline void left() {
  if (profile::on) profile::returned();
}

}  // namespace
}  // namespace emulator

// Accesses of 16 bytes whose alignment is 8, in the assembly code that narrow_accesses.py returns.
extern "C" void emulator_read16_by_8(const void* p) {
  if (emulator::profile::on) emulator::profile::touched(p, 16, emulator::profile::Access::kLoad, __builtin_return_address(0), 8);
}
extern "C" void emulator_write16_by_8(const void* p) {
  if (emulator::profile::on) emulator::profile::touched(p, 16, emulator::profile::Access::kStore, __builtin_return_address(0), 8);
}

// Loops that nvcc unrolls by four: see emulator/loops.h.
extern "C" int emulator_begins_loop(bool remainder_last) {
  if (emulator::profile::on) emulator::profile::begins_loop(__builtin_return_address(0), remainder_last);
  return 0;
}
extern "C" bool emulator_begins_step(int, unsigned long) noexcept {
  if (emulator::profile::on) emulator::profile::begins_step();
  return true;
}
extern "C" int emulator_ends_loop() {
  if (emulator::profile::on) emulator::profile::ends_loop();
  return -1;
}

extern "C" void emulator_counts_up() {
  if (emulator::profile::on) emulator::profile::counts_up();
}

// Code compiled with -fsanitize-coverage=trace-pc calls this function at the start of each basic block.
extern "C" void __sanitizer_cov_trace_pc() {
  if (emulator::profile::on) emulator::profile::stepped(__builtin_return_address(0));
}
