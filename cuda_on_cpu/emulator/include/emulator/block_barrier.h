// cuda::barrier, which is an mbarrier, and the barriers of pipelines. Asynchronous copies can be bound to a barrier: they
// are made when it opens, which is as late as CUDA allows.
#pragma once
#include <cstddef>
#include <utility>

#include "emulator/kernel.h"
#include "emulator/mbarrier.h"

namespace emulator {

struct ArrivalBarrier {
  int expected, left;
  unsigned phase;
};
// Counts arrivals in the barrier's phase, and returns the number of this phase. The last arrival opens the barrier.
unsigned arrive(ArrivalBarrier& barrier, int arrivals);
unsigned phase_of(const ArrivalBarrier& barrier);
// Copies `bytes` bytes before the present phase of a barrier ends, which is an ArrivalBarrier or an mbarrier.
void async_copy_before(const void* barrier, void* to, const void* from, std::size_t bytes);

}  // namespace emulator

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <thread_scope kScope = thread_scope_system>
class barrier {
 public:
  using arrival_token = std::uint64_t;
  barrier() = default;
  explicit barrier(std::ptrdiff_t expected, EMULATOR_CALLER) { init(this, expected, place); }

  friend void init(barrier* self, std::ptrdiff_t expected, EMULATOR_CALLER) { emulator::mbarrier_init(&self->state_, static_cast<std::uint32_t>(expected), place); }
  arrival_token arrive(std::ptrdiff_t count = 1, EMULATOR_CALLER) { return emulator::mbarrier_arrive(&state_, static_cast<std::uint32_t>(count), place); }
  void wait(arrival_token token, EMULATOR_CALLER) const { wait_parity(emulator::mbarrier_parity(token), place); }
  void wait_parity(bool parity, EMULATOR_CALLER) const {
    while (!emulator::mbarrier_wait(&state_, parity, place)) {}
  }
  void arrive_and_wait(EMULATOR_CALLER) { wait(arrive(1, place), place); }
  void arrive_and_drop(EMULATOR_CALLER) { emulator::mbarrier_arrive(&state_, 1, place, true); }
  std::uint64_t* native() { return &state_; }

 private:
  template <class Shape, thread_scope kOf>
  friend void memcpy_async(void* to, const void* from, const Shape& bytes, barrier<kOf>& bar);
  std::uint64_t state_;
};

template <class Shape, thread_scope kScope>
void memcpy_async(void* to, const void* from, const Shape& bytes, barrier<kScope>& bar) {
  emulator::async_copy_before(&bar.state_, to, from, bytes);
}
// The threads of the group divide the bytes among them.
template <class Group, class Shape, thread_scope kScope>
void memcpy_async(const Group& group, void* to, const void* from, const Shape& bytes, barrier<kScope>& bar) {
  const std::size_t total = bytes, step = 16;
  for (std::size_t at = step * group.thread_rank(); at < total; at += step * group.size())
    memcpy_async(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, total - at < step ? total - at : step, bar);
}

// Bytes that arrive by bulk copies (TMA), which the barrier counts.
namespace device {
template <thread_scope kScope>
std::uint64_t* barrier_native_handle(barrier<kScope>& bar) { return bar.native(); }
template <thread_scope kScope>
std::uint64_t barrier_arrive_tx(barrier<kScope>& bar, std::ptrdiff_t count, std::ptrdiff_t bytes, EMULATOR_CALLER) {
  emulator::mbarrier_expect(bar.native(), bytes, place);
  return bar.arrive(count, place);
}
template <thread_scope kScope>
void barrier_expect_tx(barrier<kScope>& bar, std::ptrdiff_t bytes, EMULATOR_CALLER) { emulator::mbarrier_expect(bar.native(), bytes, place); }
template <class T, class Shape, thread_scope kScope>
void memcpy_async_tx(T* to, const T* from, const Shape& bytes, barrier<kScope>& bar, EMULATOR_CALLER) {
  emulator::bulk_load(to, from, static_cast<std::uint32_t>(static_cast<std::size_t>(bytes)), bar.native(), place);
}
}  // namespace device

}  // namespace cuda
