// What a running kernel and the scheduler say to each other. Blocks are spread over the cores; the threads of
// a block share one core and are switched contexts, so that a barrier is a barrier.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/dim3.h"

// What the running thread knows of itself: read on every use, so it is plain thread-local memory. The names are
// no macros: a variable of the host's own may be called blockDim, and hides this one as it does under nvcc.
#define EMULATOR_BUILT_IN extern constinit thread_local __attribute__((tls_model("initial-exec")))
EMULATOR_BUILT_IN uint3 threadIdx;
EMULATOR_BUILT_IN uint3 blockIdx;
EMULATOR_BUILT_IN dim3 blockDim;
EMULATOR_BUILT_IN dim3 gridDim;
namespace emulator {
EMULATOR_BUILT_IN char* dynamic_shared;
// While no thread of the block has waited for another, they are calls in a row, and nobody keeps books of them.
EMULATOR_BUILT_IN bool in_a_row;
}
#undef EMULATOR_BUILT_IN

namespace emulator {

constexpr unsigned kWarpSize = 32;

struct Launch {
  const char* kernel;
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*body)(void*);  // runs threads of the kernel, one and then as many as `next_in_row` says
  void* arguments;
  const char* file = "";  // where it is launched from
  int line = 0;
  bool cooperative = false;  // all its blocks at once, so that they can wait for each other
};

// Runs every block. False where a thread faulted: `last_fault()` then says how.
extern std::atomic<std::uint64_t> launches;  // tried so far in this process
bool run(const Launch& launch);
const char* last_fault();

// Whether the calling body is to run the next thread, too, which is then the running one.
bool next_row();
inline bool next_in_row() {
  if (!in_a_row) return false;
  if (threadIdx.x + 1 == blockDim.x) return next_row();
  ++threadIdx.x;
  return true;
}

// Waits until every thread of the block that has not returned is here.
struct Votes {
  unsigned count;
  bool all, any;
};
Votes barrier(bool vote = false);

// Waits until every thread of the grid that has not returned is here; the launch must be cooperative.
void grid_barrier();
bool grid_is_cooperative();

// Waits for the lanes of `mask` that have not returned; gives every lane's value, and which lanes took part.
struct Meeting {
  const std::uint64_t* values;
  std::uint32_t lanes;
};
Meeting meet(std::uint32_t mask, std::uint64_t value);

// Lets the block's other threads run: what a thread that spins on memory needs.
void yield();
// Now and then lets the others run: whoever holds the lock that an atomic waits for may be a thread of its block.
void before_atomic();

// The lanes of the warp that run the same code as this one. Which they are shows when the rest of the block can
// go no further: those that called this from the same place.
std::uint32_t converged_lanes();

// What the running thread did wrong; its launch fails.
void fail_in_kernel(const char* what);

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % kWarpSize; }

}  // namespace emulator
