// A core: it runs one block at a time on an OS thread. The block's threads run in index order on as few stacks as
// possible. A kernel without barriers needs one stack. A thread that waits keeps its stack, and the next thread gets
// another one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "emulator/host.h"
#include "emulator/scheduler.h"

namespace emulator {

// Sets the fault of the launch: its text, and its error, a cudaError_t. Keeps only the first fault of a launch.
void set_fault(const std::string& text, int error = cudaErrorLaunchFailure);

// A kernel's static shared memory: the thread-local memory of the library that contains the kernel.
struct SharedMemory {
  char* data = nullptr;
  std::size_t bytes = 0;
};
// The library of a kernel: the range of its addresses, and its static shared memory on the calling OS thread.
struct Library {
  std::uintptr_t low = 0, high = 0;
  SharedMemory shared;
};
// The library that contains `code`.
Library library_of(const void* code);

// Starts another OS thread for blocks of the running launch that have not begun: those from `first` to `end` first.
// Returns false if it cannot, or if there are none.
bool run_more_blocks(std::uint64_t first, std::uint64_t end);

// The rendezvous of the lanes of one mask: the lanes that have arrived, and the outcome (Meeting) of the last
// rendezvous.
struct Gathering : Meeting {
  std::uint32_t mask = 0, arrived = 0;
  std::uint64_t given[kWarpSize];
};

struct Warp {
  std::uint32_t alive = 0, converging = 0;
  std::uint64_t call_chain[kWarpSize];  // for each converging lane, a hash of the return addresses on its stack
  std::vector<Gathering> gatherings;
};

class Core;

using Stacks = std::vector<std::unique_ptr<Stack>>;

struct Fiber {  // a context on a stack that runs one thread after another
  Core* core;
  Stack& stack;
  State state;
  State lowest = nullptr;   // in a cooperative launch, while other blocks use the stack: where the kept part begins
  std::vector<char> kept;
  Fiber(Core* core, Stack& stack);
};

struct Thread {
  uint3 at;
  bool at_barrier = false, at_grid = false;
  State state = nullptr;  // while the thread waits: its saved context
};

class Core {
 public:
  // The blocks of a cooperative launch take turns on `stacks`, which they share.
  explicit Core(Stacks* stacks = nullptr) : stacks_(stacks ? *stacks : own_stacks_) {}
  void begin_launch(const Launch& launch);
  void end_launch();
  void run_blocks(std::uint64_t first, std::uint64_t end);
  void fail(const char* what, int error = cudaErrorLaunchFailure) { set_fault(name(index_of(self())) + ": " + what, error); }
  // Gives up the block: none of its threads continues. The result is the state of the context that runs next.
  State abandon();
  bool runs() const { return launch_ && alive_; }
  bool holds(const void* address) const;
  void* shared_at(std::uint32_t low);
  bool next_row();
  // Called by a signal handler at the end of a time slice. `at` is the address of the interrupted instruction. If it is
  // the kernel's, and the same thread ran at the end of the slice before, other threads get their turn.
  void tick(std::uintptr_t at);

  // For a cooperative launch, in which the blocks take turns.
  void begin_block(std::uint64_t number);
  void start_block(std::uint64_t n);
  bool advance();
  void leave();
  void release_grid();
  void refuse_block(long long most);
  bool cooperative() const { return launch_->cooperative; }

  // Each of these functions lets the running thread wait. `here` is the saved state of the thread. The result is the
  // state of the context that runs next.
  bool in_lockstep() const { return lockstep_; }
  State arrive_in_lockstep(bool vote, State here);  // replaces wait_at_barrier while the block is in lockstep
  State wait_at_barrier(bool vote, State here);
  State wait_at_grid(State here);
  State wait_in_warp(std::uint32_t mask, std::uint64_t value, State here);
  State wait_for_lanes(std::uint64_t place, State here);
  State wait_for_turn(State here);

 private:
  Thread& self() {
    if (row_end) start_records();
    if (lockstep_) leave_lockstep();
    return *running_;
  }
  Thread& suspended(State here) {
    Thread& thread = self();
    thread.state = here;
    return thread;
  }
  unsigned index_of(const Thread& thread) const { return static_cast<unsigned>(&thread - threads_.data()); }
  void reset_records();
  void start_records();
  void leave_lockstep();
  std::uint64_t outcome(unsigned voters) const { return std::bit_cast<std::uint64_t>(Votes{votes_, votes_ == voters, votes_ > 0}); }
  void enter();
  void run_until_blocked();
  State next();
  State resume();
  State next_fiber();
  [[noreturn]] void run_threads(Fiber* fiber);
  char* dynamic_start();
  void keep_stacks();
  void restore_stacks();
  void poison();
  void place(unsigned index);
  void finish(Thread& thread);
  void release_barrier();
  void release_converged();
  Gathering& gathering_of(unsigned which, unsigned lane, std::uint32_t mask);
  bool is_read(const Gathering& gathering, unsigned first, unsigned except) const;
  void release(Gathering& gathering, unsigned first);
  void report_deadlock();
  void drop_threads();
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
  std::vector<unsigned> ready_;  // a ring that holds each thread at most once
  unsigned ready_head_ = 0, ready_count_ = 0;
  unsigned next_ = 0, alive_ = 0, waiting_ = 0, converging_ = 0;
  unsigned votes_ = 0, voters_ = 0, at_grid_ = 0;
  unsigned row_end_ = 0;  // in a cooperative launch, the block's value of `row_end` while another block runs
  unsigned turns_ = 0;  // how many threads in succession have let others run while lanes converge
  bool lockstep_ = false, abandoned_ = false, refused_ = false;
  std::uint64_t outcome_ = 0;  // the Votes of the last barrier
  Thread* running_ = nullptr;
  State main_ = nullptr;
  Stacks own_stacks_, &stacks_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<char> dynamic_, kept_, shared_;
  std::uint64_t number_ = 0, end_ = 0;  // the running block, and the end of the range of blocks to run
  std::uintptr_t code_low_ = 0, code_high_ = 0;  // the addresses of the kernel's library
  uint3 ticked_thread_{}, ticked_block_{};       // the thread that ran at the end of the last time slice
  unsigned interrupted_ = 0;                     // how many times threads of the block lost their turn by a tick
  uint3 block_{};
  char *static_ = nullptr, *sanitized_ = nullptr;
  std::size_t static_bytes_ = 0;
};

// The core of this OS thread.
extern EMULATOR_BUILT_IN Core* core;

}  // namespace emulator
