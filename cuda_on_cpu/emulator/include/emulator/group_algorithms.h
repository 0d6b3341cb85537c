// Reductions and scans of cooperative groups, with any operator.
#pragma once
#include "emulator/cooperative_groups.h"

namespace cooperative_groups {

#define EMULATOR_OPERATOR(NAME, EXPRESSION)                 \
  template <class T = void>                                 \
  struct NAME {                                             \
    T operator()(const T& a, const T& b) const { return EXPRESSION; } \
  };                                                        \
  template <>                                               \
  struct NAME<void> {                                       \
    template <class T>                                      \
    T operator()(const T& a, const T& b) const { return EXPRESSION; } \
  };
EMULATOR_OPERATOR(plus, a + b)
EMULATOR_OPERATOR(less, b < a ? b : a)
EMULATOR_OPERATOR(greater, a < b ? b : a)
EMULATOR_OPERATOR(bit_and, a & b)
EMULATOR_OPERATOR(bit_or, a | b)
EMULATOR_OPERATOR(bit_xor, a ^ b)
#undef EMULATOR_OPERATOR

template <class Group, class T, class Operator>
T reduce(const Group& group, T value, Operator&& combine) {
  const emulator::Gathered<T> all(group.lane_mask(), value);
  T out = all.of(group.lane_of(0));
  for (unsigned rank = 1; rank < group.size(); ++rank) {
    const unsigned lane = group.lane_of(rank);
    if (lane < emulator::kWarpSize && all.lanes() >> lane & 1) out = combine(out, all.of(lane));
  }
  return out;
}

template <unsigned N, class P, class T, class Operator>
  requires(N > 32)
T reduce(const thread_block_tile<N, P>& group, T value, Operator&& combine) {
  return group.combine(value, [&](const T* all) {
    T out = all[0];
    for (unsigned rank = 1; rank < N; ++rank) out = combine(out, all[rank]);
    return out;
  });
}

namespace details {
template <unsigned N, class P, class T, class Operator>
  requires(N > 32)
T scan(const thread_block_tile<N, P>& group, T value, Operator& combine, unsigned long long until, T start) {
  return group.combine(value, [&](const T* all) {
    T out = start;
    for (unsigned rank = 0; rank < until; ++rank) out = rank ? combine(out, all[rank]) : all[0];
    return out;
  });
}
template <class Group, class T, class Operator>
T scan(const Group& group, T value, Operator& combine, unsigned long long until, T start) {
  const emulator::Gathered<T> all(group.lane_mask(), value);
  T out = start;
  for (unsigned rank = 0; rank < until; ++rank) out = rank ? combine(out, all.of(group.lane_of(rank))) : all.of(group.lane_of(0));
  return out;
}
}  // namespace details

template <class Group, class T, class Operator = plus<T>>
T inclusive_scan(const Group& group, T value, Operator&& combine = {}) { return details::scan(group, value, combine, group.thread_rank() + 1, T{}); }
template <class Group, class T, class Operator = plus<T>>
T exclusive_scan(const Group& group, T value, Operator&& combine = {}) { return details::scan(group, value, combine, group.thread_rank(), T{}); }

}  // namespace cooperative_groups
