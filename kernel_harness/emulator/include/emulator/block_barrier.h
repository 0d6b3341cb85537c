// cuda::barrier: a barrier of so many arrivals in shared memory.
#pragma once
#include <cstddef>

#include "emulator/kernel.h"

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <thread_scope = thread_scope_system>
class barrier {
 public:
  using arrival_token = unsigned;
  barrier() = default;

  friend void init(barrier* self, std::ptrdiff_t expected) {
    self->expected_ = self->left_ = static_cast<int>(expected);
    self->phase_ = 0;
  }
  arrival_token arrive(std::ptrdiff_t count = 1) {
    const unsigned phase = phase_;
    left_ -= static_cast<int>(count);
    if (left_ <= 0) {
      left_ = expected_;
      ++phase_;
    }
    return phase;
  }
  void wait(arrival_token phase) const {
    while (*const_cast<const volatile unsigned*>(&phase_) == phase) emulator::yield();
  }
  void arrive_and_wait() { wait(arrive()); }
  void arrive_and_drop() {
    --expected_;
    arrive();
  }

 private:
  int expected_, left_;
  unsigned phase_;
};

}  // namespace cuda
