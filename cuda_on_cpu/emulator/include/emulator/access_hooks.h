// The functions that code compiled with -fsanitize=thread calls before each memory access. The functions for atomic
// accesses also make the access. One source of a library includes this header, and defines the functions that are
// declared here.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

enum class AccessKind { kRead, kWrite, kVolatileRead, kVolatileWrite, kAtomicLoad, kAtomicStore, kAtomicExchange, kAtomicCompare };

constexpr bool only_reads(AccessKind kind) { return kind == AccessKind::kRead || kind == AccessKind::kVolatileRead || kind == AccessKind::kAtomicLoad; }

namespace {
void accessed(const void* address, std::size_t bytes, AccessKind kind, const void* caller);
// An access to an object whose size is no power of two up to 16, or whose alignment is smaller than its size and 8.
void accessed_range(const void* address, std::size_t bytes, AccessKind kind, const void* caller);
void fenced();
void entered();  // a function begins, where the compiler reports that
void left();     // it ends
}  // namespace

}  // namespace emulator

#define EMULATOR_ACCESSED(bytes, kind) emulator::accessed(const_cast<const void*>(static_cast<const volatile void*>(p)), bytes, emulator::AccessKind::kind, __builtin_return_address(0))
#define EMULATOR_HOOK(name, bytes, kind) \
  void __tsan_##name(const void* p) { EMULATOR_ACCESSED(bytes, kind); }
#define EMULATOR_HOOKS(bytes)                                        \
  EMULATOR_HOOK(read##bytes, bytes, kRead)                           \
  EMULATOR_HOOK(write##bytes, bytes, kWrite)                         \
  EMULATOR_HOOK(unaligned_read##bytes, bytes, kRead)                 \
  EMULATOR_HOOK(unaligned_write##bytes, bytes, kWrite)               \
  EMULATOR_HOOK(volatile_read##bytes, bytes, kVolatileRead)          \
  EMULATOR_HOOK(volatile_write##bytes, bytes, kVolatileWrite)        \
  EMULATOR_HOOK(unaligned_volatile_read##bytes, bytes, kVolatileRead) \
  EMULATOR_HOOK(unaligned_volatile_write##bytes, bytes, kVolatileWrite)

// Every atomic access is sequentially consistent, even if the source requests a weaker order. A stronger order is never
// wrong.
#define EMULATOR_UPDATE(bits, T, name)                        \
  T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) { \
    EMULATOR_ACCESSED(sizeof(T), kAtomicExchange);            \
    return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST);     \
  }
#define EMULATOR_ATOMICS(bits, T)                                                                      \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                             \
    EMULATOR_ACCESSED(sizeof(T), kAtomicLoad);                                                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                    \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                          \
    EMULATOR_ACCESSED(sizeof(T), kAtomicStore);                                                        \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                    \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                          \
    EMULATOR_ACCESSED(sizeof(T), kAtomicExchange);                                                     \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                \
  }                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {       \
    EMULATOR_ACCESSED(sizeof(T), kAtomicCompare);                                                      \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
  }                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {         \
    EMULATOR_ACCESSED(sizeof(T), kAtomicCompare);                                                      \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                                    \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int, int) {             \
    EMULATOR_ACCESSED(sizeof(T), kAtomicCompare);                                                      \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
    return expected;                                                                                   \
  }                                                                                                    \
  EMULATOR_UPDATE(bits, T, add) EMULATOR_UPDATE(bits, T, sub) EMULATOR_UPDATE(bits, T, and)            \
  EMULATOR_UPDATE(bits, T, or) EMULATOR_UPDATE(bits, T, xor) EMULATOR_UPDATE(bits, T, nand)

extern "C" {
EMULATOR_HOOKS(1)
EMULATOR_HOOKS(2)
EMULATOR_HOOKS(4)
EMULATOR_HOOKS(8)
EMULATOR_HOOKS(16)
EMULATOR_ATOMICS(8, std::uint8_t)
EMULATOR_ATOMICS(16, std::uint16_t)
EMULATOR_ATOMICS(32, std::uint32_t)
EMULATOR_ATOMICS(64, std::uint64_t)

void __tsan_read_range(const void* p, unsigned long bytes) { emulator::accessed_range(p, bytes, emulator::AccessKind::kRead, __builtin_return_address(0)); }
void __tsan_write_range(const void* p, unsigned long bytes) { emulator::accessed_range(p, bytes, emulator::AccessKind::kWrite, __builtin_return_address(0)); }
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  emulator::fenced();
}
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}
void __tsan_func_entry(void*) { emulator::entered(); }
void __tsan_func_exit() { emulator::left(); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
