// A core and the block it runs: its threads run in index order on as few stacks as they need. A kernel without
// barriers needs one; a thread that waits leaves its stack as it is and the next gets another.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "emulator/scheduler.h"

namespace emulator {

void set_fault(const std::string& text);  // the first of a launch is kept

// The thread-local memory of the object that a kernel lives in is the kernel's static shared memory.
struct SharedMemory {
  char* data = nullptr;
  std::size_t bytes = 0;
};
SharedMemory static_memory_of(const void* code);  // on the calling thread

struct Gathering : Meeting {  // a rendezvous of the lanes of one mask, and the outcome of the last
  std::uint32_t mask = 0, arrived = 0;
  std::uint64_t given[kWarpSize];
};

struct Warp {
  std::uint32_t alive = 0, converging = 0, converged = 0;
  const void* site[kWarpSize];
  std::vector<Gathering> gatherings;
};

class Core;

struct Fiber {  // a stack that runs one thread after another
  Core* core;
  Stack stack;
  State state;
  explicit Fiber(Core* core);
};

struct Thread {
  uint3 at;
  bool at_barrier = false, at_grid = false;
  State state = nullptr;  // where it waits
};

class Core {
 public:
  void begin_launch(const Launch& launch);
  void end_launch();
  void run_block(std::uint64_t number);
  void fail(const char* what) { set_fault(name(index_of(self())) + ": " + what); }
  bool holds(const void* address) const;
  bool next_row();

  // A cooperative launch, whose blocks take turns.
  void begin_block(std::uint64_t number);
  bool advance();
  void leave();
  void release_grid();
  bool cooperative() const { return launch_->cooperative; }

  // What the running thread, which left off at `here`, waits for; gives who goes on.
  bool in_step() const { return in_step_; }
  State step(bool vote, State here);  // the same at a barrier, while in step
  State wait_at_barrier(bool vote, State here);
  State wait_at_grid(State here);
  State wait_in_warp(std::uint32_t mask, std::uint64_t value, State here);
  State wait_for_lanes(State here);
  State wait_for_turn(State here);

 private:
  Thread& self() {
    if (row_end) keep_books();
    if (in_step_) fall_out_of_step();
    return *running_;
  }
  Thread& left(State here) {
    Thread& thread = self();
    thread.state = here;
    return thread;
  }
  unsigned index_of(const Thread& thread) const { return static_cast<unsigned>(&thread - threads_.data()); }
  void open_books();
  void keep_books();
  void fall_out_of_step();
  void enter();
  void go();
  State next();
  State next_fiber();
  [[noreturn]] void run_threads(Fiber* fiber);
  char* dynamic_start();
  void poison();
  void place(unsigned index);
  void finish(Thread& thread);
  void release_barrier();
  void release_converged();
  Gathering& gathering_of(unsigned which, std::uint32_t mask);
  bool wakes(unsigned first, std::uint32_t lanes) const;
  void release(Gathering& gathering, unsigned first);
  void stuck();
  std::string name(unsigned index) const;

  void push_ready(unsigned index) {
    unsigned slot = ready_head_ + ready_count_++;
    if (slot >= ready_.size()) slot -= static_cast<unsigned>(ready_.size());
    ready_[slot] = index;
  }
  void pop_ready() {
    if (++ready_head_ == ready_.size()) ready_head_ = 0;
    --ready_count_;
  }

  friend Fiber;

  const Launch* launch_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;  // a ring: every thread is in it at most once
  unsigned ready_head_ = 0, ready_count_ = 0;
  unsigned next_ = 0, alive_ = 0, waiting_ = 0, converging_ = 0;
  unsigned votes_ = 0, voters_ = 0, at_grid_ = 0;
  unsigned row_end_ = 0;  // what `row_end` is to be when the block takes its turn
  bool in_step_ = false;
  Votes outcome_{};
  Thread* running_ = nullptr;
  State main_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<char> dynamic_, kept_, shared_;
  uint3 block_{};
  char *static_ = nullptr, *sanitized_ = nullptr;
  std::size_t static_bytes_ = 0;
};

// The one that works on this OS thread.
extern EMULATOR_BUILT_IN Core* core;

}  // namespace emulator
