// What a running kernel and the scheduler say to each other. Blocks are spread over the cores; the threads of
// a block share one core and are switched contexts, so that a barrier is a barrier.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/context.h"
#include "emulator/dim3.h"

// What the running thread knows of itself: read on every use, so it is plain thread-local memory. The names are
// no macros: a variable of the host's own may be called blockDim, and hides this one as it does under nvcc.
#define EMULATOR_BUILT_IN constinit thread_local __attribute__((tls_model("initial-exec")))
extern EMULATOR_BUILT_IN uint3 threadIdx, blockIdx;
extern EMULATOR_BUILT_IN dim3 blockDim, gridDim;

namespace emulator {

extern EMULATOR_BUILT_IN char* dynamic_shared;
// While no thread of the block has waited for another, they are calls in a row, and nobody keeps books of them: this
// is blockDim.x, where the row ends. Else it is 0.
extern EMULATOR_BUILT_IN unsigned row_end;

constexpr unsigned kWarpSize = 32;

struct Launch {
  const char* kernel;
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*body)(void*);  // runs threads of the kernel, one and then as many as `in_a_row` says
  void* arguments;
  const char* file = "";  // where it is launched from
  int line = 0;
  bool cooperative = false;  // all its blocks at once, so that they can wait for each other
};

// Runs every block. False where a thread faulted: `last_fault()` then says how.
extern std::atomic<std::uint64_t> launches;  // tried so far in this process
bool run(const Launch& launch);
const char* last_fault();

// Runs a thread, and those behind it while none waits. Where it stands in the row is in a register: a count in memory,
// which the next thread has to read, would be most of what a small kernel takes.
bool next_row();
template <class Call>
void in_a_row(Call call) {
  do {
    unsigned x = threadIdx.x;
    do {
      threadIdx.x = x;
      call();
    } while (++x < row_end);
  } while (row_end && next_row());
}

// What a thread waits for, as emulator_wait takes it; the answer is where the outcome will be. The waits are inlined,
// so that whoever goes on is back in the kernel at once, and told apart by where they are called.
State at_barrier(std::uint64_t vote, std::uint64_t, State);
State at_grid_barrier(std::uint64_t, std::uint64_t, State);
State in_warp(std::uint64_t mask, std::uint64_t value, State);
State for_lanes(std::uint64_t, std::uint64_t, State);
State for_turn(std::uint64_t, std::uint64_t, State);

#define EMULATOR_WAIT __attribute__((always_inline)) inline

// Waits until every thread of the block that has not returned is here.
EMULATOR_WAIT void barrier() { emulator_wait(0, 0, &at_barrier); }

struct Votes {
  unsigned count;
  bool all, any;
};
EMULATOR_WAIT Votes barrier(bool vote) { return *reinterpret_cast<const Votes*>(emulator_wait(vote, 0, &at_barrier)); }

// Waits until every thread of the grid that has not returned is here; the launch must be cooperative.
EMULATOR_WAIT void grid_barrier() { emulator_wait(0, 0, &at_grid_barrier); }
bool grid_is_cooperative();

// Waits for the lanes of `mask` that have not returned; gives every lane's value, and which lanes took part.
struct Meeting {
  std::uint32_t lanes = 0;
  std::uint64_t values[kWarpSize];
};
EMULATOR_WAIT const Meeting& meet(std::uint32_t mask, std::uint64_t value) {
  return *reinterpret_cast<const Meeting*>(emulator_wait(mask, value, &in_warp));
}

// Lets the block's other threads run: what a thread that spins on memory needs.
EMULATOR_WAIT void yield() { emulator_wait(0, 0, &for_turn); }
// Now and then lets the others run: whoever holds the lock that an atomic waits for may be a thread of its block.
void before_atomic();

// The lanes of the warp that run the same code as this one. Which they are shows when the rest of the block can
// go no further: those that called this from the same place.
EMULATOR_WAIT std::uint32_t converged_lanes() { return *reinterpret_cast<const std::uint32_t*>(emulator_wait(0, 0, &for_lanes)); }

#undef EMULATOR_WAIT

// What the running thread did wrong; its launch fails.
void fail_in_kernel(const char* what);

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % kWarpSize; }

}  // namespace emulator
