// A core: it runs one block at a time on an OS thread. The block's threads run in index order on as few stacks as
// possible. A kernel without barriers needs one stack. A thread that waits keeps its stack, and the next thread gets
// another one.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/host.h"
#include "emulator/mbarrier.h"
#include "emulator/scheduler.h"
#include "shared_region.h"
#include "static_memory.h"

namespace emulator {

// Sets the fault of the launch: its text, and its error, a cudaError_t. Keeps only the first fault of a launch.
void set_fault(const std::string& text, int error = cudaErrorLaunchFailure);

inline std::string text_of(SourcePlace place) { return std::string(place.file) + ":" + std::to_string(place.line); }
inline bool is_in(const void* address, const char* start, std::size_t bytes) { return address >= start && address < start + bytes; }
inline std::uint64_t volume(const dim3& size) { return static_cast<std::uint64_t>(size.x) * size.y * size.z; }
// TMA and wgmma exchange pieces of 16 bytes by the address. The pattern has rows of 32, 64 or 128 bytes; 16 stands for none.
inline char* swizzled(char* at, unsigned row_bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(at);
  return reinterpret_cast<char*>(bits ^ (bits >> 3 & (row_bytes - 16)));
}

// Starts another OS thread for blocks of the running launch that have not begun: those from `first` to `end` first.
// Returns false if it cannot, or if there are none.
bool run_more_blocks(std::uint64_t first, std::uint64_t end);
// Says that the kernel of the running launch has this size of a cluster as an attribute, so that it must begin again.
void want_cluster(dim3 cluster);

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
class Group;
class Pending;

// What a thread waits for and no barrier counts, such as a phase of an mbarrier.
class Waiting {
 public:
  explicit Waiting(SourcePlace place) : place(place) {}
  virtual ~Waiting() = default;
  virtual bool holds() = 0;                  // whether the thread goes on
  virtual std::string text() const = 0;      // what it waits for
  virtual bool ends() const { return false; }  // whether it may end before, when no other thread can go on
  const SourcePlace place;
};
// Lets the running thread wait. Returns false if the wait has ended although the condition does not hold.
bool wait_until(Waiting& waiting);

// The copies of the GPU's asynchronous units, such as TMA. Each is made when no thread of its block or cluster can go
// on without it, which is as late as CUDA allows.
struct Engine {
  std::deque<std::function<void()>> work;
  unsigned cluster_arrived = 0;     // the threads that have arrived at the barrier of the cluster
  std::uint64_t cluster_phase = 0;  // how often this barrier has opened
  std::uint64_t events = 0;  // grows with each arrival and each end of a thread, by which a deadlock is told from a wait
  bool run_one();
  void run_all() { while (run_one()) {} }
};

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
  Waiting* waits = nullptr;
};
// What the threads of a block did in a turn: nothing, because all wait; spin on memory; or more.
enum class Turn { kNone, kSpun, kRan };

class Core {
 public:
  // The blocks of a group take turns on `stacks`, which they share.
  explicit Core(Group* group = nullptr);
  ~Core();
  void begin_launch(const Launch& launch);
  void end_launch();
  void run_blocks(std::uint64_t first, std::uint64_t end);
  void fail(const char* what, int error = cudaErrorLaunchFailure) { set_fault(name(index_of(self())) + ": " + what, error); }
  // Gives up the block: none of its threads continues. The result is the state of the context that runs next.
  State abandon();
  bool runs() const { return launch_ && alive_; }
  bool holds(const void* address) const;
  // Whether an address is on the stack of a thread of the running block.
  bool is_on_stack(const void* address) const;
  // The block's shared memory in bytes, in the pieces in which a GPU gives it.
  std::size_t shared_bytes() const;
  void* shared_at(std::uint32_t low);
  // The shared memory whose address has these lowest 18 bits, which a descriptor of wgmma holds.
  char* matrix_at(std::uint32_t low);
  // The address in the shared memory of block `rank` of the cluster that `address` has in this block's.
  void* in_block(const void* address, unsigned rank);
  unsigned rank() const { return rank_; }  // in the cluster
  unsigned rank_of(const void* address) const;
  void join(std::vector<Core*> peers, unsigned rank) { peers_ = std::move(peers), rank_ = rank; }
  void arrive_in_cluster();
  bool passed_cluster(unsigned thread);
  // Whether bytes begin in the shared memory of the block, or of another block of its cluster, and exceed it.
  bool overruns(const void* address, std::size_t bytes) const;
  // Says what an access to an address without memory is.
  std::string fault_at(const void* address) const;
  // Says where in the cluster's shared memory an address is; empty if it is not there.
  std::string where(const void* address) const;
  Engine& engine() { return *engine_; }
  Pending& pending();  // what the asynchronous instructions of this block have begun
  bool lacks_cluster(dim3 cluster);
  bool next_row();
  // Called by a signal handler at the end of a time slice. `at` is the address of the interrupted instruction. If it is
  // the kernel's, and the same thread ran at the end of the slice before, other threads get their turn.
  void tick(std::uintptr_t at);

  void begin_block(std::uint64_t number);
  void start_block(std::uint64_t n);
  void refuse_block(long long most);
  bool cooperative() const { return launch_->cooperative; }
  const Launch& launch() const { return *launch_; }
  unsigned threads_alive() const { return alive_; }
  const void* cluster_barrier() const { return engine_; }
  bool end_waits();  // ends those waits that may end. Returns false if there are none, or if this has changed nothing
  void report_deadlock();
  void drop_threads();

  // For a group of blocks, which take turns.
  Turn advance();
  void enter();
  void leave();
  bool waits_at_grid() const { return alive_ && at_grid_ == alive_; }
  bool was_abandoned() const { return abandoned_; }
  void release_grid();

  // Each of these functions lets the running thread wait. `here` is the saved state of the thread. The result is the
  // state of the context that runs next.
  bool in_lockstep() const { return lockstep_; }
  State arrive_in_lockstep(bool vote, State here);  // replaces wait_at_barrier while the block is in lockstep
  State wait_at_barrier(bool vote, State here);
  State wait_at_grid(State here);
  State wait_in_warp(std::uint32_t mask, std::uint64_t value, State here);
  State wait_for_lanes(std::uint64_t place, State here);
  State wait_for_turn(State here);
  State wait_until(Waiting& waiting, State here);

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
  bool in_static(const void* address) const { return is_in(address, static_, part_.high); }
  bool in_dynamic(const void* address) const { return is_in(address, dynamic_, launch_->shared_bytes); }
  std::uint64_t outcome(unsigned voters) const { return std::bit_cast<std::uint64_t>(Votes{votes_, votes_ == voters, votes_ > 0}); }
  void run_until_blocked();
  State next();
  State resume();
  State next_fiber();
  [[noreturn]] void run_threads(Fiber* fiber);
  void place_shared();
  void enter_shared();
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
  bool wake();
  template <class Wakes>
  bool wake_if(Wakes wakes, bool answer);
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
  unsigned votes_ = 0, voters_ = 0, at_grid_ = 0, parked_ = 0;
  unsigned row_end_ = 0;  // in a group, the block's value of `row_end` while another block runs
  unsigned turns_ = 0;  // how many threads in succession have let others run
  bool lockstep_ = false, abandoned_ = false, refused_ = false, moved_ = false;
  std::uint64_t ended_at_ = 0;  // `events` of the engine when waits ended
  unsigned barren_ = 0;         // how often waits have ended since, without an event
  std::uint64_t outcome_ = 0;  // the Votes of the last barrier
  Thread* running_ = nullptr;
  State main_ = nullptr;
  Group* group_;
  bool shares_stacks_;
  Engine own_engine_, *engine_;
  Stacks own_stacks_, &stacks_;
  std::vector<Core*> peers_;  // the blocks of the cluster
  unsigned rank_ = 0;
  std::unique_ptr<Pending> pending_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Library library_;
  StaticPart part_;
  SharedRegion shared_;
  char *static_ = nullptr, *dynamic_ = nullptr;  // the static part is a copy of the library's thread-local memory
  char* host_static_ = nullptr;                  // this memory itself
  std::uint64_t number_ = 0, end_ = 0;  // the running block, and the end of the range of blocks to run
  uint3 ticked_thread_{}, ticked_block_{};       // the thread that ran at the end of the last time slice
  unsigned interrupted_ = 0;                     // how many times threads of the block lost their turn by a tick
  uint3 block_{};
};

// Blocks that wait for each other: those of a cooperative launch, or of a cluster. They take turns on one OS thread. The
// many blocks of a cooperative launch share their stacks.
class Group {
 public:
  Group(const Launch& launch, std::size_t blocks);
  // Makes blocks of the group a cluster, in the order of their ranks.
  void join(const std::vector<std::size_t>& members);
  // Runs the blocks: block i is number `numbers[i]` of the grid.
  void run(const std::vector<std::uint64_t>& numbers);
  void end_launch();
  Stacks* stacks() { return shares_ ? &stacks_ : nullptr; }
  Engine& engine() { return engine_; }

 private:
  bool run_turns();
  bool release_grid();
  void report_deadlock();
  bool shares_;
  Stacks stacks_;
  Engine engine_;
  std::vector<std::unique_ptr<Core>> blocks_;
};
// Runs all blocks of a launch, or the clusters that `next` names, as groups.
void run_grid(const Launch& launch);
bool fault_set();  // whether the running launch has a fault
void run_clusters(const Launch& launch, const std::function<bool(std::uint64_t&)>& next);
std::uint64_t clusters_of(const Launch& launch);

// The core of this OS thread.
extern EMULATOR_BUILT_IN Core* core;

// The work of the copy unit. A load goes to `to` and counts its bytes at `barrier`, or in each block of `mask`; `copy` makes
// it, given the place where it goes. A store of `bytes` at `from` belongs to the open bulk group of the running thread.
void add_load(void* to, void* barrier, std::uint32_t mask, std::uint32_t bytes, SourcePlace place, std::function<void(void*)> copy);
void add_store(const void* from, std::size_t bytes, SourcePlace place, std::function<void()> copy);
void check_room(const void* address, std::size_t bytes, SourcePlace place);  // ends the block if bytes in shared memory exceed it
void fail_at(SourcePlace place, const std::string& what);  // reports an error of the running thread
void reduce_bytes(void* to, const void* from, std::size_t bytes, const Reduction& by);
// Makes the copies that are bound to a barrier which opens.
void make_copies_of(const void* barrier);

}  // namespace emulator
