// cuda::pipeline. That of a thread is the queue of its copies. That of a block has two barriers for each of its stages, as
// in CUDA's own library: one opens when the producers have committed the stage, and makes its copies; the other when the
// consumers have released it.
#pragma once
#include "emulator/block_barrier.h"
#include "emulator/group_copy.h"

namespace cuda {

enum class pipeline_role { producer, consumer };

}  // namespace cuda

namespace emulator {

struct Stage {
  ArrivalBarrier filled, free;
};
struct StagesOfBlock {
  unsigned count = 0, producers = 0;
  Stage* stages = nullptr;
};

// Prepares the barriers of a block's pipeline. All threads of the block call it.
template <class Group>
void begin_stages(const Group& group, StagesOfBlock& of, Stage* stages, unsigned count, bool produces, bool consumes) {
  const unsigned producers = static_cast<unsigned>(__syncthreads_count(produces)), consumers = static_cast<unsigned>(__syncthreads_count(consumes));
  if (group.thread_rank() == 0) {
    of = {count, producers, stages};
    for (unsigned i = 0; i < count; ++i) stages[i] = {{static_cast<int>(producers), static_cast<int>(producers), 0}, {static_cast<int>(consumers), static_cast<int>(consumers), 0}};
  }
  group.sync();
}

}  // namespace emulator

namespace cuda {

template <thread_scope kScope, unsigned kStages>
class pipeline_shared_state {
 public:
  emulator::Stage stages[kStages];
  emulator::StagesOfBlock of;
};

template <thread_scope kScope>
class pipeline {
 public:
  pipeline() = default;
  explicit pipeline(const emulator::StagesOfBlock* of) : of_(of) {}

  void producer_acquire() {
    if (of_) wait(stage(produced_).free, produced_ / of_->count, 0);
  }
  void producer_commit() {
    if (of_) emulator::arrive(stage(produced_).filled, 1);
    else emulator::async_commit();
    ++produced_;
  }
  void consumer_wait() {
    if (of_) wait(stage(consumed_).filled, consumed_ / of_->count, 1);
    else if (produced_ > consumed_) emulator::async_wait(produced_ - consumed_ - 1);
  }
  void consumer_release() { ++consumed_, of_ && emulator::arrive(stage(consumed_ - 1).free, 1); }
  bool quit() { return true; }

  // Waits for all stages but the newest `kNewest`.
  template <unsigned kNewest>
  void wait_prior() {
    if (!of_) return emulator::async_wait(kNewest);
    for (unsigned i = consumed_; i + kNewest < produced_; ++i) wait(stage(i).filled, i / of_->count, 1);
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (of_) emulator::async_copy_before(&stage(produced_).filled, to, from, bytes);
    else emulator::async_copy(to, from, bytes);
  }

 private:
  emulator::Stage& stage(unsigned number) const { return of_->stages[number % of_->count]; }
  static void wait(const emulator::ArrivalBarrier& barrier, unsigned round, unsigned more) {
    while (emulator::phase_of(barrier) < round + more) emulator::yield();
  }
  const emulator::StagesOfBlock* of_ = nullptr;
  unsigned produced_ = 0, consumed_ = 0;  // the stages that this thread has committed and released
};

inline pipeline<thread_scope_thread> make_pipeline() { return {}; }
template <class Group, thread_scope kScope, unsigned kStages>
pipeline<kScope> make_pipeline(const Group& group, pipeline_shared_state<kScope, kStages>* state) {
  emulator::begin_stages(group, state->of, state->stages, kStages, true, true);
  return pipeline<kScope>(&state->of);
}
template <class Group, thread_scope kScope, unsigned kStages>
pipeline<kScope> make_pipeline(const Group& group, pipeline_shared_state<kScope, kStages>* state, pipeline_role role) {
  const bool produces = role == pipeline_role::producer;
  emulator::begin_stages(group, state->of, state->stages, kStages, produces, !produces);
  return pipeline<kScope>(&state->of);
}
// The first `producers` threads of the group are producers.
template <class Group, thread_scope kScope, unsigned kStages>
pipeline<kScope> make_pipeline(const Group& group, pipeline_shared_state<kScope, kStages>* state, std::size_t producers) {
  return make_pipeline(group, state, group.thread_rank() < producers ? pipeline_role::producer : pipeline_role::consumer);
}

template <unsigned kNewest, thread_scope kScope>
void pipeline_consumer_wait_prior(pipeline<kScope>& pipe) { pipe.template wait_prior<kNewest>(); }

template <class Shape, thread_scope kScope>
void memcpy_async(void* to, const void* from, const Shape& bytes, pipeline<kScope>& pipe) { pipe.copy(to, from, bytes); }
template <class Group, class Shape, thread_scope kScope>
void memcpy_async(const Group& group, void* to, const void* from, const Shape& bytes, pipeline<kScope>& pipe) {
  const std::size_t total = bytes, step = 16;
  for (std::size_t at = step * group.thread_rank(); at < total; at += step * group.size())
    pipe.copy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, total - at < step ? total - at : step);
}

}  // namespace cuda
