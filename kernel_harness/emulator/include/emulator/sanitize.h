// What the scheduler, the allocator and the host calls tell the sanitizer, and the order it asks them to work in.
// Sanitized code calls back before every access of memory (-fsanitize=thread), which runtime/sanitize_access.cpp
// answers. Nothing here costs anything but a test of `on` in a process that does not sanitize.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/scheduler.h"

namespace emulator::sanitize {

// Set once, before any launch: blocks then run one at a time on one core.
extern bool on;

// The permutation of blocks and threads that was asked for.
std::uint64_t nth_block(std::uint64_t place);
unsigned nth_thread(unsigned place);

// The life of a launch, as the scheduler goes through it.
void begin_launch(const Launch& launch);
void static_memory(char* start, std::size_t bytes);
char* dynamic_memory(std::size_t bytes);  // dynamic shared memory with room to miss it, until the launch ends
void end_launch();
void begin_block(std::uint64_t number, unsigned threads);
void resume_block(std::uint64_t number);  // of a cooperative launch, whose blocks take turns
void release_grid();                      // a barrier of the whole grid
void run_thread(void (*body)(void*), void* arguments);  // the whole of one thread; it may end early
void switch_to(unsigned thread);
void arrive(unsigned thread, const void* caller, bool at_barrier);  // else in a warp operation
void release_barrier(unsigned alive);
void release_warp(unsigned first, std::uint32_t lanes);
void keep_quiet(const void* start, std::size_t bytes);  // memory of the emulator's own that kernels read
void never_reached(unsigned thread, bool barrier);  // `thread` waits for ever
void outside_mask(unsigned thread);
bool given_up();  // an access nobody can survive: the launch is over

// Device memory.
void* allocate(std::size_t bytes);
void release(void* address);
void adopt(const void* address, std::size_t bytes);
void forget(const void* address);
void written_by_host(const void* address, std::size_t bytes);

// A launch that never ran.
void refused(const Launch& launch, const char* error);

}  // namespace emulator::sanitize
