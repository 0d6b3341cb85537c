// cuda::barrier: a barrier in shared memory that opens after a given number of arrivals. Asynchronous copies can be bound
// to it: they are made when it opens, which is as late as CUDA allows.
#pragma once
#include <cstddef>

#include "emulator/kernel.h"

namespace emulator {

struct ArrivalBarrier {
  int expected, left;
  unsigned phase;
};
// Counts arrivals in the barrier's phase, and returns the number of this phase. The last arrival opens the barrier.
unsigned arrive(ArrivalBarrier& barrier, int arrivals);
unsigned phase_of(const ArrivalBarrier& barrier);
// Copies `bytes` bytes before the barrier's present phase ends.
void async_copy(ArrivalBarrier& barrier, void* to, const void* from, std::size_t bytes);

}  // namespace emulator

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <thread_scope = thread_scope_system>
class barrier {
 public:
  using arrival_token = unsigned;
  barrier() = default;
  explicit barrier(std::ptrdiff_t expected) { init(this, expected); }

  friend void init(barrier* self, std::ptrdiff_t expected) {
    self->state_.expected = self->state_.left = static_cast<int>(expected);
    self->state_.phase = 0;
  }
  arrival_token arrive(std::ptrdiff_t count = 1) { return emulator::arrive(state_, static_cast<int>(count)); }
  void wait(arrival_token phase) const {
    while (emulator::phase_of(state_) == phase) emulator::yield();
  }
  void wait_parity(bool parity) const {
    while ((emulator::phase_of(state_) & 1) == parity) emulator::yield();
  }
  void arrive_and_wait() { wait(arrive()); }
  void arrive_and_drop() {
    --state_.expected;
    arrive();
  }

 private:
  template <class Shape, thread_scope kScope>
  friend void memcpy_async(void* to, const void* from, const Shape& bytes, barrier<kScope>& bar);
  emulator::ArrivalBarrier state_;
};

template <class Shape, thread_scope kScope>
void memcpy_async(void* to, const void* from, const Shape& bytes, barrier<kScope>& bar) {
  emulator::async_copy(bar.state_, to, from, bytes);
}
// The threads of the group divide the bytes among them.
template <class Group, class Shape, thread_scope kScope>
void memcpy_async(const Group& group, void* to, const void* from, const Shape& bytes, barrier<kScope>& bar) {
  const std::size_t total = bytes, step = 16;
  for (std::size_t at = step * group.thread_rank(); at < total; at += step * group.size())
    memcpy_async(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, total - at < step ? total - at : step, bar);
}

}  // namespace cuda
