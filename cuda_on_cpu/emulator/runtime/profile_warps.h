// Records what the threads of a block do, and brings the threads of each warp together as a GPU does, for the command
// `profile`. The emulator runs the threads of a warp one after the other, so their basic blocks and accesses are first
// kept in the order of each thread. Between two barriers the warp is then run again: at each step, those threads go on
// together whose next instruction is the same and comes first in the code. So threads that leave a branch or a loop early
// wait behind it for the others. The rule is thread frontiers with the order of the code as the priority:
// G. Diamos et al., "SIMD re-convergence at thread frontiers", MICRO 2011.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "emulator/profile.h"
#include "emulator/scheduler.h"
#include "profile_accesses.h"
#include "profile_wide.h"

namespace emulator::profile {

// How often warps executed a basic block, and how often their threads did: at most 32 times as often.
struct Executed {
  std::uint64_t warps = 0, threads = 0;
};

// The accesses and basic blocks of the warps of one block. A basic block is given by its site: the return address of
// the call at its start.
class BlockRecord {
 public:
  // The block has `threads` threads.
  BlockRecord(std::uint64_t number, std::uint64_t threads) : number(number), threads_(threads), warps_((threads + kWarpSize - 1) / kWarpSize) {}

  // Records an access of a thread, whose number in the block is `thread`. `widest` is explained in emulator/profile.h.
  void record(unsigned thread, std::uintptr_t address, std::size_t bytes, Space space, Access access, const void* site, std::uint32_t widest, Update update);
  // Records that a thread begins a basic block.
  void step(unsigned thread, const void* site);
  // Records that a thread begins a loop that nvcc unrolls by four, one of its steps, or has ended it.
  void begin_loop(unsigned thread, const void* site, bool remainder_last);
  void begin_step(unsigned thread);
  void end_loop(unsigned thread);
  // Records that a thread calls a function (1) or returns from one (-1).
  void change_depth(unsigned thread, int change);
  // The threads in `lanes` of the warp whose first thread is `first` met in a warp operation.
  void meet(unsigned first, std::uint32_t lanes);
  // Runs the warps again and adds what they do to the sums. The threads of the block have met at a barrier, or have ended.
  void settle();
  // Settles and frees memory, because another block runs now where this block ran.
  void release();
  // Returns how often each basic block was executed.
  std::map<const void*, Executed> executed() const;

  const std::uint64_t number;
  Instructions sums;
  std::uint64_t left_out = 0;  // accesses that were not recorded, because too many came before

 private:
  struct Event {  // an access, the begin of a basic block or a meeting of the warp
    std::uint64_t order;
    std::uint64_t inner;  // the order in a loop that nvcc unrolls, whose events have the order of its begin
    std::uintptr_t address;
    std::uint32_t index;  // of the instruction or basic block
    std::uint32_t bytes;
  };
  struct Last {  // the last access at an instruction: its address, and how often its thread had written before
    std::uintptr_t address = 0;
    std::uint64_t writes = 0;
  };
  struct Read {  // a plain load
    std::uintptr_t address;
    std::size_t bytes;
    unsigned index;  // of the instruction
  };
  struct Lane {
    std::vector<Event> events;
    std::size_t next = 0;             // the event that is run again next
    int depth = 0;                    // of calls
    std::uint64_t writes = 0;         // its writes, and the points at which it could see those of other threads
    std::uintptr_t written = 0;       // the address of the last of these, or 0
    std::vector<Read> read;           // since then, in the basic block
    std::uintptr_t last_address = 0;  // of its last access
    Access last = Access::kLoad;
    std::uint64_t loop = 0;           // the order of the loop in which it is, or 0
    bool remainder_last = false;      // of that loop
    std::size_t loop_start = 0;       // the event at which that loop begins
    std::vector<std::size_t> steps;   // those at which its steps begin
    bool recorded = false;  // whether its last access is an event

    void see_write(std::uintptr_t address = 0) {
      ++writes;
      written = address;
      read.clear();
    }
  };
  enum class Invariance : std::uint8_t { kUnknown, kInvariant, kVaries };  // whether a load reads the same in each step
  using ByLane = std::array<std::uint32_t, kWarpSize>;
  struct Warp {
    std::array<Lane, kWarpSize> lanes;
    std::vector<ByLane> accessed, stepped;  // how often since the last barrier, by instruction and by basic block
    std::vector<std::array<Last, kWarpSize>> last;  // by instruction
    WideAccesses wide;                      // its accesses to shared memory since the last barrier
  };

  static std::uint64_t order_of(const Lane& lane, const void* site);
  Lane& lane_of(unsigned thread) { return warps_[thread / kWarpSize].lanes[thread % kWarpSize]; }
  unsigned instruction_of(const Instruction& instruction);
  unsigned step_of(const void* site);
  static bool repeats(const Lane& lane, const Last& before, std::uintptr_t address);
  void note(Lane& lane, const Read& load);
  bool run_to_request(Warp& warp, Request& request, unsigned& instruction);
  void add_unrecorded(Warp& warp);
  void add_request(unsigned index, const Request& request);
  void add_shared(Warp& warp, unsigned index, const Request& request);

  const std::uint64_t threads_;
  std::vector<Warp> warps_;
  Neighbours neighbours_;
  std::map<Instruction, unsigned> instruction_of_;
  std::vector<Instruction> instructions_;
  std::vector<bool> alone_;  // by instruction: volatile and atomic accesses are not merged
  std::vector<Invariance> invariance_;  // by instruction: of loads in loops that nvcc unrolls
  std::vector<unsigned> copy_of_;  // by instruction: another one, whose loads it repeats
  std::map<const void*, unsigned> step_of_;
  std::vector<const void*> sites_;  // of the basic blocks
  std::vector<Executed> executed_;  // by basic block
  std::array<unsigned, 256> recent_instructions_{};  // guesses by the site
  std::array<unsigned, 1024> recent_steps_{};
};

}  // namespace emulator::profile
