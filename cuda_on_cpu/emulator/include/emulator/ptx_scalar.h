// Instructions of inline PTX on the numbers of one thread that have no function in CUDA's library, and the questions that
// inline PTX asks about the running launch.
// https://docs.nvidia.com/cuda/parallel-thread-execution/
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "emulator/bfloat16.h"
#include "emulator/half.h"
#include "emulator/mbarrier.h"

namespace emulator {

// The shared memory of the running block in bytes: what the launch asked for, and that with the `__shared__` variables
// of the kernel, rounded up to the 128 bytes in which an H200 gives it.
std::uint32_t dynamic_shared_bytes();
std::uint32_t total_shared_bytes();

namespace ptx {

// |a - b| + c. A result that is too large is cut.
template <class T>
T sad(T a, T b, T c) {
  using Unsigned = std::make_unsigned_t<T>;
  const auto left = static_cast<Unsigned>(a), right = static_cast<Unsigned>(b);
  return static_cast<T>(static_cast<Unsigned>((a < b ? right - left : left - right) + static_cast<Unsigned>(c)));
}

// `bits` ones that begin at bit `start`. Without kClamps, only the lower five bits of both count.
template <bool kClamps>
std::uint32_t bmsk(std::uint32_t start, std::uint32_t bits) {
  if (kClamps && start >= 32) return 0;
  start &= 31;
  const std::uint32_t from = ~0u << start;
  if (kClamps && bits >= 32) return from;
  bits &= 31;
  return start + bits >= 32 ? from : from & ~(~0u << (start + bits));
}

// The lowest `bits` bits of x, extended by its sign if T has one. Without kClamps, only the lower five bits of `bits` count.
template <bool kClamps, class T>
T szext(T x, std::uint32_t bits) {
  if (kClamps && bits >= 32) return x;
  bits &= 31;
  return bits ? static_cast<T>(static_cast<T>(static_cast<std::uint32_t>(x) << (32 - bits)) >> (32 - bits)) : 0;
}

// min and max with .NaN (the result is NaN if an input is) and .xorsign.abs (the smaller or larger magnitude, with the
// product's sign). A zero below zero is smaller than the other zero.
template <bool kLarger, bool kNan, bool kXorsign, class T>
T extreme(T a, T b) {
  if constexpr (requires { a.x, a.y; }) {
    return {extreme<kLarger, kNan, kXorsign>(a.x, b.x), extreme<kLarger, kNan, kXorsign>(a.y, b.y)};
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(extreme<kLarger, kNan, kXorsign>(__half2float(a), __half2float(b)));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(extreme<kLarger, kNan, kXorsign>(__bfloat162float(a), __bfloat162float(b)));
  } else {
    static_assert(std::is_same_v<T, float>);
    if (std::isnan(a) ? kNan || std::isnan(b) : kNan && std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    const T x = kXorsign ? std::fabs(a) : a, y = kXorsign ? std::fabs(b) : b;
    const bool below = x < y || (x == y && std::signbit(x));
    const T out = std::isnan(x) || (!std::isnan(y) && below == kLarger) ? y : x;
    return kXorsign ? std::copysign(out, std::signbit(a) != std::signbit(b) ? T{-1} : T{1}) : out;
  }
}

}  // namespace ptx
}  // namespace emulator
