// What the compiler makes sanitized code call before it touches memory, by the names it gives them
// (-fsanitize=thread). The atomic ones are the accesses themselves, in host code too.
#include "sanitize_state.h"

using emulator::sanitize::inside;
using emulator::sanitize::Manner;
using emulator::sanitize::touch;

#define CALLER __builtin_return_address(0)
#define TOUCH(name, bytes, write, manner)                                                            \
  void __tsan_##name(const void* p) {                                                                \
    if (inside) touch(p, bytes, write, Manner::manner, CALLER);                                      \
  }
#define TOUCHES(bytes)                                                                               \
  TOUCH(read##bytes, bytes, false, kPlain)                                                           \
  TOUCH(write##bytes, bytes, true, kPlain)                                                           \
  TOUCH(unaligned_read##bytes, bytes, false, kPlain)                                                 \
  TOUCH(unaligned_write##bytes, bytes, true, kPlain)                                                 \
  TOUCH(volatile_read##bytes, bytes, false, kVolatile)                                               \
  TOUCH(volatile_write##bytes, bytes, true, kVolatile)                                               \
  TOUCH(unaligned_volatile_read##bytes, bytes, false, kVolatile)                                     \
  TOUCH(unaligned_volatile_write##bytes, bytes, true, kVolatile)

// Every update is sequentially consistent, whatever was asked for: stronger is never wrong.
#define UPDATE(bits, T, name)                                                                        \
  T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) {                                    \
    if (inside) touch(const_cast<T*>(p), sizeof(T), true, Manner::kAtomic, CALLER);                  \
    return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST);                                            \
  }
#define ATOMICS(bits, T)                                                                             \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                           \
    if (inside) touch(const_cast<const T*>(p), sizeof(T), false, Manner::kAtomic, CALLER);           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                  \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                        \
    if (inside) touch(const_cast<T*>(p), sizeof(T), true, Manner::kAtomic, CALLER);                  \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                        \
  }                                                                                                  \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                        \
    if (inside) touch(const_cast<T*>(p), sizeof(T), true, Manner::kAtomic, CALLER);                  \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                  \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {     \
    if (inside) touch(const_cast<T*>(p), sizeof(T), true, Manner::kAtomic, CALLER);                  \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
  }                                                                                                  \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {       \
    if (inside) touch(const_cast<T*>(p), sizeof(T), true, Manner::kAtomic, CALLER);                  \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
  }                                                                                                  \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int, int) {           \
    if (inside) touch(const_cast<T*>(p), sizeof(T), true, Manner::kAtomic, CALLER);                  \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
    return expected;                                                                                 \
  }                                                                                                  \
  UPDATE(bits, T, add) UPDATE(bits, T, sub) UPDATE(bits, T, and) UPDATE(bits, T, or)                 \
  UPDATE(bits, T, xor) UPDATE(bits, T, nand)

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

void __tsan_read_range(const void* p, unsigned long bytes) {
  if (inside) touch(p, bytes, false, Manner::kPlain, CALLER);
}
void __tsan_write_range(const void* p, unsigned long bytes) {
  if (inside) touch(p, bytes, true, Manner::kPlain, CALLER);
}
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (inside) emulator::sanitize::fence();
}
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
