// Receives the memory accesses of sanitized code, and passes those of kernels to the sanitizer.
#include "emulator/access_hooks.h"

#include "sanitize_state.h"

namespace emulator {
namespace {

inline void accessed(const void* address, std::size_t bytes, AccessKind kind, const void* caller) {
  if (!sanitize::inside) {
    if (sanitize::awaits_host_memory(address, bytes, !only_reads(kind))) sanitize::accessed_too_early(address, bytes, !only_reads(kind), caller);
    return;
  }
  const sanitize::Manner manner = kind <= AccessKind::kWrite           ? sanitize::Manner::kPlain
                                  : kind <= AccessKind::kVolatileWrite ? sanitize::Manner::kVolatile
                                                                       : sanitize::Manner::kAtomic;
  sanitize::touch(address, bytes, !only_reads(kind), manner, caller);
}

inline void accessed_range(const void* address, std::size_t bytes, AccessKind kind, const void* caller) { accessed(address, bytes, kind, caller); }

inline void fenced() {
  if (sanitize::inside) sanitize::fence();
}

inline void entered() {}
inline void left() {}

}  // namespace
}  // namespace emulator
