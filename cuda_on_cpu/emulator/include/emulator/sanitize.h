// The interface to the sanitizer for the scheduler, the allocator and the host functions. They report what happens, and
// ask for the order of blocks and threads. Sanitized code (-fsanitize=thread) calls runtime/sanitize_access.cpp before
// each memory access. In a process without the sanitizer, each report costs one test of `on`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/mbarrier.h"
#include "emulator/scheduler.h"

namespace emulator::sanitize {

// Whether the sanitizer is on. Set once, before any launch. If it is on, blocks run one at a time on one core.
extern bool on;

// Return the block (the cluster, if there are any), the block of a group of blocks, or the thread that runs at a place in
// the requested order.
std::uint64_t nth_block(std::uint64_t place);
std::uint64_t nth_turn(std::uint64_t place);
unsigned nth_thread(unsigned place);

// The scheduler reports each step of a launch, in this order.
void begin_launch(const Launch& launch);
void static_memory(char* start, std::size_t bytes);
// Dynamic shared memory with unused room around it, until the launch ends. Its address has the lowest 18 bits of the first
// multiple of 4096 from `behind` on.
char* dynamic_memory(std::size_t bytes, const char* behind);
void end_launch();
void begin_group();  // blocks begin that run at once
void begin_block(std::uint64_t number, unsigned threads);
void order_blocks();  // every access so far of the running block, or of its cluster, is ordered before the later ones
void resume_block(std::uint64_t number);  // in a group of blocks, which take turns
void release_grid();                      // all threads of the grid met at a barrier
void run_thread(void (*body)(void*), void* arguments);  // runs one thread; the sanitizer may end it early
void switch_to(unsigned thread);
void arrive(unsigned thread, const void* caller, bool at_barrier);  // if not at_barrier: in a warp operation
void release_barrier(unsigned alive);
void release_warp(unsigned first, std::uint32_t lanes);
void ignore_memory(const void* start, std::size_t bytes);  // memory of the emulator that kernels read
void never_reached(unsigned thread, bool barrier);  // `thread` waits forever
void outside_mask(unsigned thread);
// Reports an access of a kernel through a misaligned pointer, and ends the thread.
void misaligned(const void* address, std::size_t alignment, const char* what, const void* caller);
void trapped(const char* what, const void* caller);  // an assertion or a trap ends the running thread
void absent_lane(unsigned lane);  // the running thread reads from a lane that does not take part in its shuffle
void stuck(unsigned thread, SourcePlace place, const std::string& what);  // `thread` waits forever for what is not there
void failed(SourcePlace place, const std::string& what);  // an error of the running thread

// The GPU's asynchronous units, which copy in bulk and multiply for warpgroups. A unit of the running block reads for the
// running thread, and counts its reads, from 1.
struct Reads {
  unsigned unit = 0;
  std::uint64_t number = 0;  // 0: the end of these reads is not followed
};
void fence_proxy();
const void* caller_of(SourcePlace place);  // stands for the return address of a call there
void unit_reads(const void* from, std::size_t bytes, SourcePlace place, Reads reads = {});
void unit_writes(const void* to, std::size_t bytes, SourcePlace place, bool updates = false);
void arrived(const void* to, std::size_t bytes);  // what was written to shared memory is there
void unit_fills(const std::vector<std::uint32_t*>& registers, SourcePlace place, Reads reads);  // with the sums of what it reads
void reads_ended(Reads last);  // the running thread has waited for these and all reads before
// The running thread arrives at a barrier, or has waited for it. So it knows which reads have ended that a thread knew
// which had arrived.
void gave(const void* barrier);
void took(const void* barrier);
bool launch_aborted();  // true after an access that would crash the process; the launch must end

// Device memory: allocated, freed, adopted from another owner, given back, and written by host code.
void* allocate(std::size_t bytes);
void release(void* address);
void adopt(const void* address, std::size_t bytes);
void forget(const void* address);
void written_by_host(const void* address, std::size_t bytes);
// Whether work that the host has not waited for uses this pinned memory; and a report of an access that host code makes.
bool awaits_host_memory(const void* address, std::size_t bytes, bool write);
void accessed_too_early(const void* address, std::size_t bytes, bool write, const void* caller);

// Reports a launch that was rejected and did not run.
void refused(const Launch& launch, const char* error);

}  // namespace emulator::sanitize
