// Counts barriers, warp operations, memory accesses and basic blocks of kernels for the command `profile`. Outside a
// profile, each report costs one test of `on`.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/mbarrier.h"
#include "emulator/scheduler.h"

namespace emulator::profile {

extern bool on;

enum class Access : std::uint8_t { kLoad, kVolatileLoad, kStore, kCopy, kAtomicLoad, kAtomicUpdate, kAtomicCompare };

void launched(const Launch& launch);                       // a launch begins; no other launch runs until it ends
void met_at_barrier();                                     // all threads of the running block met at a barrier
void met_in_warp(unsigned first, std::uint32_t lanes);     // lanes of the warp whose first thread is `first` met in a warp operation
constexpr std::uint32_t kWidest = 16;  // the most bytes that one instruction of a GPU reads or writes for a thread
// The running thread accesses memory. `site` is the return address of the call that reports the access. Its instructions
// access at most `widest` bytes each.
void touched(const void* address, std::size_t bytes, Access access, const void* site, std::uint32_t widest = kWidest);
// The running thread begins an atomic update. `counts_up` was called before if the update adds 1 and its result is unused.
void begins_update(Update update);
void counts_up();
// A bulk copy that the running thread begins reads or writes bytes of global memory; its warpgroup begins a product with
// so many operations, two for each multiply-add.
void copied(SourcePlace place, std::uint64_t read, std::uint64_t written);
void multiplied(SourcePlace place, std::uint64_t operations);
// The running thread begins a basic block. `site` is the return address of the call that reports it.
void stepped(const void* site);
// The running thread begins a loop that nvcc unrolls by four, one of its steps, or has ended it. `site` is the return
// address of the call that reports it. nvcc puts the steps that remain before the others, or last.
void begins_loop(const void* site, bool remainder_last);
void begins_step();
void ends_loop();
// The running thread has called a function, or is about to return from one.
void called();
void returned();

}  // namespace emulator::profile
