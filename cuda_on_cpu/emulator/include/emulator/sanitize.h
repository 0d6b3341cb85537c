// The interface to the sanitizer for the scheduler, the allocator and the host functions. They report what happens, and
// ask for the order of blocks and threads. Sanitized code (-fsanitize=thread) calls runtime/sanitize_access.cpp before
// each memory access. In a process without the sanitizer, each report costs one test of `on`.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/scheduler.h"

namespace emulator::sanitize {

// Whether the sanitizer is on. Set once, before any launch. If it is on, blocks run one at a time on one core.
extern bool on;

// Return the block or the thread that runs at a place in the requested order.
std::uint64_t nth_block(std::uint64_t place);
unsigned nth_thread(unsigned place);

// The scheduler reports each step of a launch, in this order.
void begin_launch(const Launch& launch);
void static_memory(char* start, std::size_t bytes);
char* dynamic_memory(std::size_t bytes);  // dynamic shared memory with unused room around it, until the launch ends
void end_launch();
void begin_block(std::uint64_t number, unsigned threads);
void order_block();  // every access of the block so far is ordered before its later accesses
void resume_block(std::uint64_t number);  // in a cooperative launch, in which blocks take turns
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
