// What kernels did, counted for those who ask. Elsewhere it costs a test of `on`.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/scheduler.h"

namespace emulator::profile {

extern bool on;

void launched(const Launch& launch);  // it begins now, and nothing else runs until it ends
void met_at_barrier();                // all threads of a block
void met_in_warp();                   // the lanes of a warp operation
void touched(const void* address, std::size_t bytes, bool write);

}  // namespace emulator::profile
