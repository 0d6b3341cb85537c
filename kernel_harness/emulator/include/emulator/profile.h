// Counts barriers, warp operations and memory accesses of kernels for the command `profile`. Outside a
// profile, each report costs one test of `on`.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/scheduler.h"

namespace emulator::profile {

extern bool on;

void launched(const Launch& launch);  // a launch begins; no other launch runs until it ends
void met_at_barrier();                // all threads of a block met at a barrier
void met_in_warp();                   // lanes met in a warp operation
void touched(const void* address, std::size_t bytes, bool write);

}  // namespace emulator::profile
