// Atomic operations, for exactly those types for which CUDA has them. The scope of each is the whole machine.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#atomic-functions
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/scheduler.h"
#include "emulator/vectors.h"

namespace emulator {

// In shared memory, a GPU has instructions for integers of 32 bits only (SASS of nvcc 13.0 for sm_90).
template <class T>
constexpr Update update_of() { return std::is_integral_v<T> && sizeof(T) == 4 ? Update::kNative : Update::kLoop; }

// Replaces the value at `address` by update(value), and returns the old value. Repeats a compare-and-swap until no
// other thread changes the value in between. It is inlined, so that a profile knows the kernel's line.
template <class T, class Change>
__attribute__((always_inline)) inline T atomically(T* address, Change update, Update kind = update_of<T>()) {
  before_atomic(kind);
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  auto* bits = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(bits, __ATOMIC_RELAXED), after;
  T old;
  do {
    std::memcpy(&old, &before, sizeof old);
    const T fresh = update(old);
    std::memcpy(&after, &fresh, sizeof after);
  } while (!__atomic_compare_exchange_n(bits, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

template <class T>
T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  else return a + b;
}

}  // namespace emulator

#define EMULATOR_ATOMIC_1(NAME, T, EXPRESSION, ...) \
  __attribute__((always_inline)) inline T NAME(T* p, T v) { return emulator::atomically(p, [=]([[maybe_unused]] T old) -> T { return EXPRESSION; } __VA_OPT__(,) __VA_ARGS__); }
#define EMULATOR_ATOMIC(NAME, T, EXPRESSION, ...)              \
  EMULATOR_ATOMIC_1(NAME, T, EXPRESSION, __VA_ARGS__)          \
  EMULATOR_ATOMIC_1(NAME##_block, T, EXPRESSION, __VA_ARGS__)  \
  EMULATOR_ATOMIC_1(NAME##_system, T, EXPRESSION, __VA_ARGS__)
#define EMULATOR_INTEGER(T)                                        \
  EMULATOR_ATOMIC(atomicMin, T, v < old ? v : old)                 \
  EMULATOR_ATOMIC(atomicMax, T, old < v ? v : old)
#define EMULATOR_BITS(T)                     \
  EMULATOR_ATOMIC(atomicAnd, T, old & v)     \
  EMULATOR_ATOMIC(atomicOr, T, old | v)      \
  EMULATOR_ATOMIC(atomicXor, T, old ^ v)
#define EMULATOR_CAS(NAME, T) \
  __attribute__((always_inline)) inline T NAME(T* p, T expected, T v) { return emulator::atomically(p, [=](T old) -> T { return old == expected ? v : old; }, emulator::Update::kCompare); }
#define EMULATOR_CASES(T) EMULATOR_CAS(atomicCAS, T) EMULATOR_CAS(atomicCAS_block, T) EMULATOR_CAS(atomicCAS_system, T)

EMULATOR_ATOMIC(atomicAdd, int, emulator::wrapping_sum(old, v))
EMULATOR_ATOMIC(atomicAdd, unsigned, old + v)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + v)
EMULATOR_ATOMIC(atomicAdd, float, old + v)
EMULATOR_ATOMIC(atomicAdd, double, old + v)
EMULATOR_ATOMIC(atomicSub, int, emulator::wrapping_sum(old, emulator::wrapping_sum(~v, 1)))
EMULATOR_ATOMIC(atomicSub, unsigned, old - v)
EMULATOR_ATOMIC(atomicExch, int, v)
EMULATOR_ATOMIC(atomicExch, unsigned, v)
EMULATOR_ATOMIC(atomicExch, unsigned long long, v, emulator::Update::kNative)
EMULATOR_ATOMIC(atomicExch, float, v, emulator::Update::kNative)
EMULATOR_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)
EMULATOR_INTEGER(int)
EMULATOR_INTEGER(unsigned)
EMULATOR_INTEGER(long long)
EMULATOR_INTEGER(unsigned long long)
EMULATOR_BITS(int)
EMULATOR_BITS(unsigned)
EMULATOR_BITS(unsigned long long)
EMULATOR_CASES(int)
EMULATOR_CASES(unsigned)
EMULATOR_CASES(unsigned long long)
EMULATOR_CASES(unsigned short)
#undef EMULATOR_CASES
#undef EMULATOR_CAS
#undef EMULATOR_BITS
#undef EMULATOR_INTEGER
#undef EMULATOR_ATOMIC
#undef EMULATOR_ATOMIC_1

// Each component is a separate atomic operation, because the hardware guarantees no more.
__attribute__((always_inline)) inline float2 atomicAdd(float2* p, float2 v) { return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)}; }
__attribute__((always_inline)) inline float4 atomicAdd(float4* p, float4 v) {
  return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y), atomicAdd(&p->z, v.z), atomicAdd(&p->w, v.w)};
}

// Atomic functions for any type of 2, 4 or 8 bytes. https://docs.nvidia.com/cuda/cuda-c-programming-guide/#nv-atomic-functions
enum { __NV_ATOMIC_RELAXED, __NV_ATOMIC_CONSUME, __NV_ATOMIC_ACQUIRE, __NV_ATOMIC_RELEASE, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_SEQ_CST };
enum { __NV_THREAD_SCOPE_THREAD, __NV_THREAD_SCOPE_BLOCK, __NV_THREAD_SCOPE_CLUSTER, __NV_THREAD_SCOPE_DEVICE, __NV_THREAD_SCOPE_SYSTEM };
#define EMULATOR_FETCH(NAME, EXPRESSION)                                                                       \
  template <class T>                                                                                           \
  __attribute__((always_inline)) inline T __nv_atomic_##NAME(T* p, std::type_identity_t<T> v, int, int = __NV_THREAD_SCOPE_SYSTEM) { \
    return emulator::atomically(p, [=]([[maybe_unused]] T old) -> T { return static_cast<T>(EXPRESSION); });   \
  }
EMULATOR_FETCH(fetch_add, emulator::wrapping_sum(old, v))
EMULATOR_FETCH(fetch_sub, old - v)
EMULATOR_FETCH(fetch_min, v < old ? v : old)
EMULATOR_FETCH(fetch_max, old < v ? v : old)
EMULATOR_FETCH(fetch_and, old & v)
EMULATOR_FETCH(fetch_or, old | v)
EMULATOR_FETCH(fetch_xor, old ^ v)
EMULATOR_FETCH(exchange_n, v)
#undef EMULATOR_FETCH
template <class T>
__attribute__((always_inline)) inline std::remove_cv_t<T> __nv_atomic_load_n(T* p, int, int = __NV_THREAD_SCOPE_SYSTEM) {
  return emulator::atomically(const_cast<std::remove_cv_t<T>*>(p), [](auto old) { return old; });
}
template <class T>
__attribute__((always_inline)) inline void __nv_atomic_store_n(T* p, std::type_identity_t<T> v, int order, int = __NV_THREAD_SCOPE_SYSTEM) { __nv_atomic_exchange_n(p, v, order); }
template <class T>
__attribute__((always_inline)) inline bool __nv_atomic_compare_exchange_n(T* p, T* expected, std::type_identity_t<T> v, bool, int, int, int = __NV_THREAD_SCOPE_SYSTEM) {
  const T wanted = *expected;
  *expected = emulator::atomically(p, [=](T old) -> T { return old == wanted ? v : old; }, emulator::Update::kCompare);
  return *expected == wanted;
}
