// Warp operations: shuffles, votes, matches and reductions.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/scheduler.h"

namespace emulator {

// The values that the lanes pass to one warp operation. The value of a lane that does not take part is undefined in
// CUDA. Here it is 0, as on an H100.
template <class T>
class Exchanged {
 public:
  Exchanged(unsigned mask, T mine) {
    static_assert(sizeof(T) <= 8, "a warp operation moves at most eight bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &mine, sizeof mine);
    meeting_ = &meet(mask, bits);
  }
  T of(unsigned lane) const {
    if (!(meeting_->lanes >> lane & 1)) return T{};
    T value;
    std::memcpy(&value, &meeting_->values[lane], sizeof value);
    return value;
  }
  std::uint32_t lanes() const { return meeting_->lanes; }

 private:
  const Meeting* meeting_;
};

// Returns a mask of those `lanes` for which `holds` is true.
template <class Holds>
unsigned lanes_where(std::uint32_t lanes, Holds holds) {
  unsigned out = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if (lanes >> i & 1 && holds(i)) out |= 1u << i;
  return out;
}

template <class T, class Source>
__attribute__((always_inline)) inline T shuffle(unsigned mask, T value, Source source) {
  const Exchanged<T> all(mask, value);
  const unsigned mine = lane(), from = source(mine);
  if (from >= kWarpSize) return value;
  if (!(all.lanes() >> from & 1)) reads_absent_lane(from);
  return all.of(from);
}

template <class T, class Combine>
T reduce(unsigned mask, T value, Combine combine) {
  const Exchanged<T> all(mask, value);
  T out = value;
  bool first = true;
  for (unsigned i = 0; i < kWarpSize; ++i) {
    if (!(all.lanes() >> i & 1)) continue;
    out = first ? all.of(i) : combine(out, all.of(i));
    first = false;
  }
  return out;
}

constexpr unsigned kNoLane = ~0u;

// The values that the lanes pass to one exchange. A value may have any size.
template <class T>
class Gathered {
 public:
  Gathered(unsigned mask, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>, "what lanes exchange must be trivially copyable");
    const auto* from = reinterpret_cast<const char*>(&mine);
    for (std::size_t at = 0; at < sizeof(T); at += 8) {
      const std::size_t bytes = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
      std::uint64_t bits = 0;
      std::memcpy(&bits, from + at, bytes);
      const Meeting& meeting = meet(mask, bits);
      lanes_ = meeting.lanes;
      for (unsigned i = 0; i < kWarpSize; ++i) {
        const std::uint64_t value = lanes_ >> i & 1 ? meeting.values[i] : 0;
        std::memcpy(values_ + i * sizeof(T) + at, &value, bytes);
      }
    }
  }
  std::uint32_t lanes() const { return lanes_; }
  T of(unsigned lane) const {
    alignas(T) char bytes[sizeof(T)];
    std::memcpy(bytes, values_ + lane * sizeof(T), sizeof(T));
    return *reinterpret_cast<T*>(bytes);
  }

 private:
  char values_[kWarpSize * sizeof(T)];
  std::uint32_t lanes_ = 0;
};

}  // namespace emulator

// The overloads are those of CUDA, so that arguments are converted, and calls are ambiguous, as with nvcc.
#define EMULATOR_SHUFFLES(T)                                                                                          \
  inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {                                    \
    return emulator::shuffle(mask, value, [=](unsigned lane) { return (lane & ~(width - 1u)) + (source & (width - 1u)); }); \
  }                                                                                                                   \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {                             \
    return emulator::shuffle(mask, value, [=](unsigned lane) { return (lane & (width - 1u)) >= delta ? lane - delta : emulator::kNoLane; }); \
  }                                                                                                                   \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {                           \
    return emulator::shuffle(mask, value, [=](unsigned lane) { return (lane & (width - 1u)) + static_cast<std::uint64_t>(delta) < static_cast<unsigned>(width) ? lane + delta : emulator::kNoLane; }); \
  }                                                                                                                   \
  inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {                                  \
    return emulator::shuffle(mask, value, [=](unsigned lane) { const unsigned other = lane ^ bits; return other < (lane & ~(width - 1u)) + width ? other : emulator::kNoLane; }); \
  }
EMULATOR_SHUFFLES(int)
EMULATOR_SHUFFLES(unsigned)
EMULATOR_SHUFFLES(long)
EMULATOR_SHUFFLES(unsigned long)
EMULATOR_SHUFFLES(long long)
EMULATOR_SHUFFLES(unsigned long long)
EMULATOR_SHUFFLES(float)
EMULATOR_SHUFFLES(double)

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  emulator::Exchanged<int> all(mask, predicate != 0);
  return emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i); });
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  emulator::Exchanged<int> all(mask, predicate != 0);
  return emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i); }) == all.lanes();
}
inline int __uni_sync(unsigned mask, int predicate) {
  const emulator::Exchanged<int> all(mask, predicate != 0);
  const unsigned holding = emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i); });
  return !holding || holding == all.lanes();
}
__attribute__((always_inline)) inline unsigned __activemask() { return emulator::converged_lanes(); }

#define EMULATOR_MATCHES(T)                                                                                           \
  inline unsigned __match_any_sync(unsigned mask, T value) {                                                          \
    const emulator::Exchanged<T> all(mask, value);                                                                    \
    return emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i) == value; });                        \
  }                                                                                                                   \
  inline unsigned __match_all_sync(unsigned mask, T value, int* all_same) {                                           \
    const emulator::Exchanged<T> all(mask, value);                                                                    \
    *all_same = emulator::lanes_where(all.lanes(), [&](unsigned i) { return all.of(i) == value; }) == all.lanes();    \
    return *all_same ? all.lanes() : 0;                                                                               \
  }
EMULATOR_MATCHES(int)
EMULATOR_MATCHES(unsigned)
EMULATOR_MATCHES(long)
EMULATOR_MATCHES(unsigned long)
EMULATOR_MATCHES(long long)
EMULATOR_MATCHES(unsigned long long)
EMULATOR_MATCHES(float)
EMULATOR_MATCHES(double)
#undef EMULATOR_MATCHES

#define EMULATOR_REDUCTION(NAME, T, EXPRESSION) \
  inline T __reduce_##NAME##_sync(unsigned mask, T value) { return emulator::reduce(mask, value, [](T a, T b) { return EXPRESSION; }); }
EMULATOR_REDUCTION(add, unsigned, a + b)
EMULATOR_REDUCTION(add, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
EMULATOR_REDUCTION(min, unsigned, a < b ? a : b)
EMULATOR_REDUCTION(min, int, a < b ? a : b)
EMULATOR_REDUCTION(max, unsigned, a < b ? b : a)
EMULATOR_REDUCTION(max, int, a < b ? b : a)
EMULATOR_REDUCTION(and, unsigned, a & b)
EMULATOR_REDUCTION(or, unsigned, a | b)
EMULATOR_REDUCTION(xor, unsigned, a ^ b)
#undef EMULATOR_REDUCTION
