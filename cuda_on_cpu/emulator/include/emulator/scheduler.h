// The interface between a running kernel and the scheduler. The blocks are divided among the cores. The threads of a
// block share one core as switched contexts, so that a barrier stops each of them.
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/context.h"
#include "emulator/dim3.h"

// The indices of the running thread. They are plain thread-local variables, because reading them must be fast. They are
// not macros, because host code may have a variable named blockDim, which hides this one as with nvcc.
#define EMULATOR_BUILT_IN constinit thread_local __attribute__((tls_model("initial-exec")))
extern EMULATOR_BUILT_IN uint3 threadIdx, blockIdx;
extern EMULATOR_BUILT_IN dim3 blockDim, gridDim;

namespace emulator {

extern EMULATOR_BUILT_IN char* dynamic_shared;
extern EMULATOR_BUILT_IN bool carry;  // the carry flag of the running thread
// While no thread of the block has waited, threads run as plain calls in rows along x, without any records. Then
// row_end is blockDim.x, the end of a row. After a thread of the block has waited, it is 0.
extern EMULATOR_BUILT_IN unsigned row_end;

constexpr unsigned kWarpSize = 32;

struct Launch {
  const char* kernel;
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*body)(void*);  // runs one thread of the kernel or, by `run_row`, several
  void* arguments;
  const char* file = "";  // file and line of the launch in the source
  int line = 0;
  std::uint64_t ticket = 0;  // for the sanitizer, its place in the order of launches
  bool cooperative = false;  // all blocks run at once, so that they can wait for each other
  dim3 cluster{};            // the blocks of a thread block cluster, which run at once and reach each other's shared memory
};

extern std::atomic<std::uint64_t> launches;  // the launches so far in this process, with those that failed
extern std::atomic<std::uint64_t> launched_threads;  // of the launches that were not refused
// Runs every block of a launch. Returns false if a thread had a fault, which `last_fault()` describes. The error of the
// fault, a cudaError_t, is `last_fault_error()`.
bool run(const Launch& launch);
// Declares the kernels of a source: their unqualified names, with blanks in between. `here` is an address in the library.
// `wide` says whether a kernel may need shared memory that begins at a multiple of 1024 bytes. Returns true.
bool declare_kernels(const void* here, const char* names, bool wide);
bool skips_kernels();  // whether launches presently succeed and run nothing
bool in_kernel();      // whether a thread of a kernel runs on this OS thread
bool is_shared(const void* address);  // whether an address is in the shared memory of the running block
bool is_local(const void* address);   // whether an address is on the stack of a thread of the running block
struct SourcePlace {  // of an instruction in the source
  const char* file;
  int line;
};
#define EMULATOR_HERE (::emulator::SourcePlace{__FILE__, __LINE__})
// The last parameter of a function of CUDA: the place of the call.
#define EMULATOR_CALLER ::emulator::SourcePlace place = {__builtin_FILE(), __builtin_LINE()}
enum class Space { kGlobal, kShared, kLocal, kConstant };
// Whether the running thread's address is in a space. A `__device__` variable and a `__constant__` one look alike here,
// so for the address of a variable the question whether it is in kGlobal or kConstant ends the launch as unsupported.
bool is_in_space(Space space, const void* address, SourcePlace here);
const char* last_fault();
int last_fault_error();

// Runs the thread at threadIdx and then the threads behind it, until one of them waits. The position in the row is in a
// register, because counting in memory would take most of a small kernel's time.
bool next_row();
template <class Call>
void run_row(Call call) {
  do {
    unsigned x = threadIdx.x;
    do {
      threadIdx.x = x;
      call();
    } while (++x < row_end);
  } while (row_end && next_row());
}

// These functions are the `choose` argument of emulator_wait, one for each way in which a thread waits. The callers of
// emulator_wait below are inlined, so that a thread continues directly in the kernel, and so that the return address
// identifies the place in the kernel.
State at_barrier(std::uint64_t vote, std::uint64_t, State);
State at_grid_barrier(std::uint64_t, std::uint64_t, State);
State in_warp(std::uint64_t mask, std::uint64_t value, State);
State for_lanes(std::uint64_t place, std::uint64_t, State);
State for_turn(std::uint64_t, std::uint64_t, State);

#define EMULATOR_WAIT __attribute__((always_inline)) inline

// Waits until all threads of the block that have not returned wait at a barrier.
EMULATOR_WAIT void barrier() { emulator_wait(0, 0, &at_barrier); }

struct Votes {
  unsigned count;
  unsigned short all, any;
};
EMULATOR_WAIT Votes barrier(bool vote) { return std::bit_cast<Votes>(emulator_wait(vote, 0, &at_barrier)); }

// Waits until all threads of the grid that have not returned wait at a grid barrier. The launch must be cooperative.
EMULATOR_WAIT void grid_barrier() { emulator_wait(0, 0, &at_grid_barrier); }
bool grid_is_cooperative();

// `meet` waits for the lanes of `mask` that have not returned. Its result has the lanes that took part, as a mask, and
// the value of each.
struct Meeting {
  std::uint32_t lanes = 0;
  std::uint64_t values[kWarpSize];
};
EMULATOR_WAIT const Meeting& meet(std::uint32_t mask, std::uint64_t value) {
  return *reinterpret_cast<const Meeting*>(emulator_wait(mask, value, &in_warp));
}

// Called for a shuffle that reads from a lane which does not take part in it.
void reads_absent_lane(unsigned lane);

// Lets the other threads of the block run. A thread that spins on memory must call it.
EMULATOR_WAIT void yield() { emulator_wait(0, 0, &for_turn); }
// bar.sync and bar.arrive: arrives at one of the block's numbered barriers, which opens after `threads` arrivals.
void meet_at_barrier(unsigned number, unsigned threads, bool waits);
// How a GPU updates shared memory: by one instruction (kNative), by one that adds the number of threads that have the same
// address (kCount), by a compare-and-swap of the kernel (kCompare), or by compare-and-swaps in a loop (kLoop).
enum class Update : std::uint8_t { kNative, kCount, kCompare, kLoop };
// Called before each atomic operation. Every 1024th call lets the other threads of the block run, because one of them
// may hold the lock for which this thread spins.
void before_atomic(Update update);

// Returns a mask of the lanes of the warp that reached this place in the code by the same calls as the running lane.
// Waits until no other thread of the block can continue, because only then these lanes are known.
EMULATOR_WAIT std::uint32_t converged_lanes() { return static_cast<std::uint32_t>(emulator_wait(0, 0, &for_lanes)); }

// Lets the lanes of a warp that are at the same place go on together. A place is a number above 0, which grows from the
// beginning of the source to its end.
EMULATOR_WAIT void step(std::uint64_t place) { emulator_wait(place, 0, &for_lanes); }

#undef EMULATOR_WAIT

// Reports an error of the running thread, which makes the launch fail.
void fail_in_kernel(const char* what);
// Ends the running block by an error of the running thread: `error` is a cudaError_t, and `caller` the return address of
// the call in the kernel.
[[noreturn]] void trap(const char* what, int error, const void* caller);
[[noreturn]] void trap_at(const char* file, int line);  // __trap()
// Ends the launch, because its kernel has reached what the emulator cannot run at this place of the source. The worker
// process then reports the candidate as unsupported.
void lack_in_kernel(const std::string& construct, const char* file, int line);
void lack_in_launch(const std::string& construct, const char* file, int line);
// The same for a construct of any function: ends the kernel's block, or throws in host code. `sentence` begins with
// "emulator_lack ", by which the sentences are found in a library.
[[noreturn]] void lack(const char* sentence);
[[noreturn]] void lack(const char* file, int line, const char* construct);
#define EMULATOR_QUOTED(LINE) EMULATOR_QUOTED_(LINE)
#define EMULATOR_QUOTED_(LINE) #LINE
#define EMULATOR_LACK(CONSTRUCT) \
  ::emulator::lack("emulator_lack " __FILE__ ":" EMULATOR_QUOTED(__LINE__) ": the emulation cannot run " CONSTRUCT ".")

// Returns whether the running block has more threads than the launch bounds of its kernel allow: `most`. Then the launch
// fails. All threads of the block call it first and then return, so none of them has an effect.
void refuse_block(long long most);
template <class Most, class... Others>
bool exceeds_launch_bounds(Most most, Others...) {
  const auto bound = static_cast<long long>(most), threads = static_cast<long long>(blockDim.x * blockDim.y * blockDim.z);
  if (__builtin_expect(bound <= 0 || threads <= bound, true)) return false;
  refuse_block(bound);
  return true;
}

// Whether a kernel whose attribute names this size of a cluster was launched without it. All threads of the block call it
// first and then return, and the launch begins again with clusters.
bool lacks_cluster(dim3 cluster);

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % kWarpSize; }

}  // namespace emulator
