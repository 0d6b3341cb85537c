#include "aligned_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "emulator/half.h"
#include "emulator/matrix_unit.h"

namespace emulator {
namespace {

constexpr std::int32_t kOfZero = -10000;  // the exponent of a factor that is zero
constexpr std::int32_t kLargest = 126;    // numbers with larger exponents may exceed the range of float
constexpr std::size_t kAtOnce = 8;        // that many products fit into 32 bits: each is below 2^27 when it is cut off

std::int32_t exponent_of(float value, int least, std::int32_t of_zero) {
  if (value == 0) return of_zero;
  return std::max(static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) >> 23 & 0xFF) - 127, least);
}

float power_of_two(std::int32_t exponent) { return std::bit_cast<float>((exponent + 127) << 23); }

// Cut off behind `bits` bits, or earlier if the number is below the least normal float.
double cut(double value, int bits) {
  if (std::fabs(value) < 0x1p-126) return std::trunc(value * 0x1p126 * (1 << bits)) * 0x1p-126 / (1 << bits);
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & ~std::uint64_t{0} << (52 - bits));
}

// The nearest half. A float whose last bit says that more follows is rounded to the half to which the number is rounded.
float nearest_half(double value) {
  const float cut_off = static_cast<float>(cut(value, 23));
  const float marked = std::bit_cast<float>(std::bit_cast<std::uint32_t>(cut_off) | (cut_off != value));
  return static_cast<float>(widened(__float2half_rn(marked)));
}

struct Row {
  const Alignment& alignment;
  const float *a, *b;  // the row of A, whose numbers are `rows` apart, and B
  const std::int32_t *a_exponents, *b_exponents;
  std::size_t depth, rows, columns;
};

__attribute__((optimize("O3"))) void align(const Row& row, const float* sums, std::int32_t* __restrict__ largest, float* __restrict__ scales) {
  for (std::size_t column = 0; column < row.columns; ++column) largest[column] = exponent_of(sums[column], row.alignment.least_sum(), row.alignment.zero());
  for (std::size_t k = 0; k < row.depth; ++k) {
    const std::int32_t exponent = row.a_exponents[k * row.rows];
    const std::int32_t* others = row.b_exponents + k * row.columns;
    for (std::size_t column = 0; column < row.columns; ++column) largest[column] = std::max(largest[column], exponent + others[column]);
  }
  const std::int32_t bits = row.alignment.bits;
  for (std::size_t column = 0; column < row.columns; ++column) scales[column] = power_of_two(std::clamp(bits - largest[column], bits - kLargest, 126));
}

// Sets `totals` to the sums as multiples of the last bit that is kept.
__attribute__((optimize("O3"))) void add(const Row& row, const float* sums, const float* __restrict__ scales, std::int32_t* __restrict__ parts, double* __restrict__ totals) {
  for (std::size_t column = 0; column < row.columns; ++column) totals[column] = static_cast<std::int32_t>(sums[column] * scales[column]);
  for (std::size_t first = 0; first < row.depth; first += kAtOnce) {
    std::fill(parts, parts + row.columns, 0);
    for (std::size_t k = first; k < std::min(row.depth, first + kAtOnce); ++k) {
      const float factor = row.a[k * row.rows];
      const float* others = row.b + k * row.columns;
      for (std::size_t column = 0; column < row.columns; ++column) parts[column] += static_cast<std::int32_t>(factor * others[column] * scales[column]);
    }
    for (std::size_t column = 0; column < row.columns; ++column) totals[column] += parts[column];
  }
}

// The sum in double precision, for numbers that are infinite, NaN or too large.
double plain(const Row& row, float sum, std::size_t column) {
  double total = sum;
  for (std::size_t k = 0; k < row.depth; ++k) total += static_cast<double>(row.a[k * row.rows]) * row.b[k * row.columns + column];
  return total;
}

__attribute__((optimize("O3"))) void finish(const Row& row, const float* __restrict__ scales, const double* __restrict__ totals, float* __restrict__ sums) {
  if (row.alignment.half)
    for (std::size_t column = 0; column < row.columns; ++column) sums[column] = nearest_half(totals[column] * (1.0 / scales[column]));
  else
    for (std::size_t column = 0; column < row.columns; ++column) sums[column] = static_cast<float>(cut(totals[column] * (1.0 / scales[column]), row.alignment.kept));
}

__attribute__((optimize("O3"))) void set_exponents(std::vector<std::int32_t>& out, std::span<const float> numbers, int least) {
  out.resize(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) out[i] = exponent_of(numbers[i], least, kOfZero);
}

bool all_finite(std::span<const float> numbers) {
  std::uint32_t most = 0;
  for (const float each : numbers) most = std::max(most, std::bit_cast<std::uint32_t>(each) & 0x7FFFFFFF);
  return most < 0x7F800000;
}

}  // namespace

void add_aligned(const Alignment& alignment, std::span<float> sums, std::span<const float> a, std::span<const float> b, std::size_t columns) {
  const std::size_t rows = sums.size() / columns, depth = a.size() / rows;
  const bool finite = all_finite(a) && all_finite(b) && all_finite(sums);
  static thread_local std::vector<std::int32_t> a_exponents, b_exponents, largest, parts;
  static thread_local std::vector<float> scales;
  static thread_local std::vector<double> totals;
  set_exponents(a_exponents, a, alignment.least_a);
  set_exponents(b_exponents, b, alignment.least_b);
  largest.resize(columns), parts.resize(columns), scales.resize(columns), totals.resize(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    const Row row{alignment, &a[r], b.data(), &a_exponents[r], b_exponents.data(), depth, rows, columns};
    float* const of_row = &sums[r * columns];
    align(row, of_row, largest.data(), scales.data());
    add(row, of_row, scales.data(), parts.data(), totals.data());
    if (!finite || *std::max_element(largest.begin(), largest.end()) > kLargest) {
      for (std::size_t column = 0; column < columns; ++column) {
        const double whole = plain(row, of_row[column], column);
        if (!std::isfinite(whole) || largest[column] > kLargest) totals[column] = whole * scales[column];
      }
    }
    finish(row, scales.data(), totals.data(), of_row);
  }
}

void multiply_in_unit(Factor factor, bool halves, std::span<float> sums, std::span<const float> a, std::span<const float> b, std::size_t columns) {
  const int least = factor == Factor::kHalf ? -14 : -126;
  add_aligned({25, 23, least, least, halves}, sums, a, b, columns);
}

}  // namespace emulator
