// wgmma: the four warps of a warpgroup multiply two matrices in shared memory, of which the first may be in registers.
// Products run when a warpgroup has committed them: where a kernel uses the sums before it waits for them, ptxas adds the
// wait (its messages C7515 and C7517). Before that the registers of the sums have arbitrary numbers.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
#pragma once
#include <cstdint>

#include "emulator/mbarrier.h"

namespace emulator {

enum class WgmmaType : std::uint8_t { kHalf, kBfloat16, kTf32, kE4M3, kE5M2, kS8, kU8 };
enum class WgmmaSum : std::uint8_t { kFloat, kHalf, kInteger };

struct WgmmaShape {  // the sums have 64 rows
  WgmmaType a, b;
  WgmmaSum sum;
  std::uint16_t columns;
  bool negates_a, negates_b, transposes_a, transposes_b;
  bool operator==(const WgmmaShape&) const = default;
};

void wgmma_begin(const WgmmaShape& shape, std::uint32_t* const* registers, std::uint64_t a, const std::uint32_t* a_registers, std::uint64_t b, bool adds, SourcePlace place);
void wgmma_commit(SourcePlace place);
void wgmma_wait(unsigned newest_left, SourcePlace place);

}  // namespace emulator
