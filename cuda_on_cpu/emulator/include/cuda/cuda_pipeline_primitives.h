// cp.async by its C++ primitives. https://docs.nvidia.com/cuda/cuda-c-programming-guide/#pipeline-primitives-interface
#pragma once
#include "emulator/async_copy.h"
#include "emulator/kernel.h"

// cp.async has only these sizes and alignments. Others fault on a GPU.
inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0) {
  const bool legal = (bytes == 4 || bytes == 8 || bytes == 16) && zeros <= bytes && reinterpret_cast<std::size_t>(to) % bytes == 0 &&
                     reinterpret_cast<std::size_t>(from) % bytes == 0;
  if (!legal) return emulator::fail_in_kernel("__pipeline_memcpy_async copies 4, 8 or 16 bytes, and both addresses must be multiples of that size");
  emulator::async_copy(to, from, bytes, zeros);
}
inline void __pipeline_commit() { emulator::async_commit(); }
inline void __pipeline_wait_prior(std::size_t newest_left) { emulator::async_wait(static_cast<unsigned>(newest_left)); }
