// What a kernel's own code can say: qualifiers, built-in variables, barriers, warp operations, atomics.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/scheduler.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// One copy per core, which runs one block at a time: the block's threads share it, and no others.
#define __shared__ static thread_local

constexpr int warpSize = emulator::kWarpSize;

inline void __syncthreads() { emulator::barrier(); }
inline int __syncthreads_count(int predicate) { return static_cast<int>(emulator::barrier(predicate != 0).count); }
inline int __syncthreads_and(int predicate) { return emulator::barrier(predicate != 0).all; }
inline int __syncthreads_or(int predicate) { return emulator::barrier(predicate != 0).any; }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { emulator::meet(mask, 0); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace emulator {

// Every lane's value of one warp operation. An inactive lane's value is undefined on a GPU; here it is its own.
template <class T>
class Exchanged {
 public:
  Exchanged(unsigned mask, T mine) : mine_(mine) {
    static_assert(sizeof(T) <= 8, "a warp operation moves at most eight bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &mine, sizeof mine);
    meeting_ = meet(mask, bits);
  }
  T of(unsigned lane) const {
    if (!(meeting_.lanes >> lane & 1)) return mine_;
    T value;
    std::memcpy(&value, &meeting_.values[lane], sizeof value);
    return value;
  }
  std::uint32_t lanes() const { return meeting_.lanes; }

 private:
  T mine_;
  Meeting meeting_;
};

// The lanes of one warp operation for which a predicate holds.
template <class Holds>
unsigned lanes_where(std::uint32_t lanes, Holds holds) {
  unsigned out = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if (lanes >> i & 1 && holds(i)) out |= 1u << i;
  return out;
}

}  // namespace emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const unsigned lane = emulator::lane(), first = lane & ~static_cast<unsigned>(width - 1);
  return emulator::Exchanged<T>(mask, value).of(first + (source & (width - 1)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const unsigned lane = emulator::lane(), first = lane & ~static_cast<unsigned>(width - 1);
  emulator::Exchanged<T> all(mask, value);
  return lane >= first + delta ? all.of(lane - delta) : value;
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const unsigned lane = emulator::lane(), first = lane & ~static_cast<unsigned>(width - 1);
  emulator::Exchanged<T> all(mask, value);
  return lane + delta < first + width ? all.of(lane + delta) : value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
  const unsigned lane = emulator::lane(), first = lane & ~static_cast<unsigned>(width - 1), other = lane ^ bits;
  emulator::Exchanged<T> all(mask, value);
  return other < first + width ? all.of(other) : value;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  emulator::Exchanged<int> all(mask, predicate != 0);
  return emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i); });
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  emulator::Exchanged<int> all(mask, predicate != 0);
  return emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i); }) == all.lanes();
}
inline unsigned __activemask() { return emulator::active_lanes(); }

namespace emulator {

// One attempt after another until nobody came between, as the hardware's compare-and-swap loop.
template <class T, class Update>
T atomically(T* address, Update update) {
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
using Same = std::common_type_t<T>;  // not deduced, so that atomicAdd(double*, 1) converts as an overload would

}  // namespace emulator

template <class T> T atomicAdd(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) -> T { return old + v; }); }
template <class T> T atomicSub(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) -> T { return old - v; }); }
template <class T> T atomicMax(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) { return old < v ? v : old; }); }
template <class T> T atomicMin(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) { return v < old ? v : old; }); }
template <class T> T atomicExch(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T) { return v; }); }
template <class T> T atomicAnd(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) -> T { return old & v; }); }
template <class T> T atomicOr(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) -> T { return old | v; }); }
template <class T> T atomicXor(T* p, emulator::Same<T> v) { return emulator::atomically(p, [=](T old) -> T { return old ^ v; }); }
template <class T> T atomicCAS(T* p, emulator::Same<T> expected, emulator::Same<T> v) {
  return emulator::atomically(p, [=](T old) { return old == expected ? v : old; });
}

template <class T> T __ldg(const T* address) { return *address; }

// CUDA's global overloads, which the standard library has in std only.
#define EMULATOR_MIN_MAX(T)                                  \
  constexpr T min(T a, T b) { return b < a ? b : a; }        \
  constexpr T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
#undef EMULATOR_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
