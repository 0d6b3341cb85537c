// Part of a candidate's library that is to be counted: what its code, compiled with -fsanitize=thread, calls before it
// touches memory, by the names that the compiler gives. The atomic ones are the accesses themselves.
#include <cstdint>

#include "emulator/profile.h"

using emulator::profile::touched;

#define TOUCH(name, bytes, write) \
  void __tsan_##name(const void* p) { touched(p, bytes, write); }
#define TOUCHES(bytes)                   \
  TOUCH(read##bytes, bytes, false)       \
  TOUCH(write##bytes, bytes, true)       \
  TOUCH(unaligned_read##bytes, bytes, false) \
  TOUCH(unaligned_write##bytes, bytes, true)

// Sequentially consistent, whatever was asked for: stronger is never wrong. An update reads and writes.
#define UPDATE(bits, T, name)                                                                    \
  T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) {                                \
    both(p);                                                                                     \
    return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST);                                        \
  }
#define ATOMICS(bits, T)                                                                         \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                       \
    touched(const_cast<const T*>(p), sizeof(T), false);                                          \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                              \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                    \
    touched(const_cast<T*>(p), sizeof(T), true);                                                 \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                              \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                    \
    both(p);                                                                                     \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                          \
  }                                                                                              \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) { \
    touched(const_cast<T*>(p), sizeof(T), true);                                                 \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                              \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {   \
    touched(const_cast<T*>(p), sizeof(T), true);                                                 \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                              \
  UPDATE(bits, T, add) UPDATE(bits, T, sub) UPDATE(bits, T, and) UPDATE(bits, T, or)             \
  UPDATE(bits, T, xor)

namespace {
template <class T>
void both(volatile T* p) {
  touched(const_cast<T*>(p), sizeof(T), false);
  touched(const_cast<T*>(p), sizeof(T), true);
}
}  // namespace

extern "C" {
TOUCHES(1)
TOUCHES(2)
TOUCHES(4)
TOUCHES(8)
TOUCHES(16)
ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)

void __tsan_read_range(const void* p, unsigned long bytes) { touched(p, bytes, false); }
void __tsan_write_range(const void* p, unsigned long bytes) { touched(p, bytes, true); }
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
