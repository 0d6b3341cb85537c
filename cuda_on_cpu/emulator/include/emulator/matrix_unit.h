// The matrix unit of an H100, as mma.sync and wmma use it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace emulator {

enum class Factor : std::uint8_t { kHalf, kBfloat16, kTf32 };

// Adds to `sums` (rows x columns) the products of `a` (depth x rows) and `b` (depth x columns) as one instruction HMMA does,
// whose depth is at most 16, or 8 for TF32. `halves`: the sums are halves.
void multiply_in_unit(Factor factor, bool halves, std::span<float> sums, std::span<const float> a, std::span<const float> b, std::size_t columns);

}  // namespace emulator
