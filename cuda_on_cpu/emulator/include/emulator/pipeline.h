// cuda::pipeline. If the pipeline belongs to a block, consumer_wait returns after the copies of all threads of the
// block have arrived.
#pragma once
#include "emulator/block_barrier.h"
#include "emulator/group_copy.h"

namespace cuda {

template <thread_scope kScope, unsigned kStages>
struct pipeline_shared_state {};

template <thread_scope kScope>
class pipeline {
 public:
  void producer_acquire() { meet(); }
  void producer_commit() {
    emulator::async_commit();
    ++stages_;
  }
  void consumer_wait() {
    if (stages_) --stages_;
    emulator::async_wait(stages_);
    meet();
  }
  void consumer_release() {}
  bool quit() { return true; }

 private:
  static void meet() {
    if constexpr (kScope != thread_scope_thread) __syncthreads();
  }
  unsigned stages_ = 0;
};

inline pipeline<thread_scope_thread> make_pipeline() { return {}; }
template <unsigned kStages>
pipeline<thread_scope_block> make_pipeline(const cooperative_groups::thread_block&, pipeline_shared_state<thread_scope_block, kStages>*) { return {}; }

template <unsigned kNewest, thread_scope kScope>
void pipeline_consumer_wait_prior(pipeline<kScope>&) { emulator::async_wait(kNewest); }

template <class Shape, thread_scope kScope>
void memcpy_async(void* to, const void* from, const Shape& bytes, pipeline<kScope>&) { emulator::async_copy(to, from, bytes); }
template <class Group, class Shape, thread_scope kScope>
void memcpy_async(const Group& group, void* to, const void* from, const Shape& bytes, pipeline<kScope>&) {
  const std::size_t total = bytes, step = 16;
  for (std::size_t at = step * group.thread_rank(); at < total; at += step * group.size())
    emulator::async_copy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, total - at < step ? total - at : step);
}

}  // namespace cuda
