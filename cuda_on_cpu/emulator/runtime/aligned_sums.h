// Sums of products as the matrix units of an H100 form them.
#pragma once
#include <cstddef>
#include <span>

namespace emulator {

// How one instruction adds. All numbers are cut off below the bit that is `bits` places below the largest exponent of
// all products and of the sum before. The exact sum of what is left is cut off at `kept` bits behind the point if it is
// a float, or rounded to the nearest half. Exponents of factors are no lower than `least_a` and `least_b`, those of sums
// no lower than `least_sum`; a sum of zero has the exponent `zero`. Numbers below 2^-126 count as zero here.
// Found with an H100 by Microsoft's MMA-Sim, https://github.com/microsoft/MMA-Sim, which describes it in Python.
struct Alignment {
  int bits, kept, least_a, least_b;
  bool half;
  int zero() const { return half ? -21 : -133; }
  int least_sum() const { return half ? -14 : -126; }
};

// Adds to `sums` (rows x columns) the products of `a` (depth x rows) and `b` (depth x columns).
void add_aligned(const Alignment& alignment, std::span<float> sums, std::span<const float> a, std::span<const float> b, std::size_t columns);

}  // namespace emulator
