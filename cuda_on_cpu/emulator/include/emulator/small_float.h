// Conversions to and from the 16-bit floating types, in each of CUDA's four rounding directions. half.h and bfloat16.h
// have the types.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace emulator {

enum class Round { nearest, zero, down, up };

// A binary format of 16 bits: IEEE half precision has 10 fraction bits, bfloat16 has 7.
template <int kFraction>
struct SmallFormat {
  static constexpr int kExponent = 15 - kFraction, kBias = (1 << (kExponent - 1)) - 1;
  static constexpr std::uint16_t kInfinity = ((1 << kExponent) - 1) << kFraction, kNaN = 0x7FFF;

  // Rounds a double. This serves a float, too, because every float is exactly a double. The result for NaN is CUDA's
  // 0x7FFF.
  static std::uint16_t from(double value, Round round = Round::nearest) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const std::uint16_t sign = bits >> 63 << 15;
    if (std::isnan(value)) return kNaN;
    if (std::isinf(value)) return sign | kInfinity;
    if (value == 0) return sign;
    int exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
    std::uint64_t fraction = (bits & ((1ull << 52) - 1)) | (exponent > -1023 ? 1ull << 52 : 0);
    exponent = exponent < 1 - kBias ? 1 - kBias : exponent;  // subnormal: the fraction is shifted further instead
    const int true_exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
    int shift = 52 - kFraction + (exponent - true_exponent);
    if (shift > 63) fraction = 1, shift = 63;  // far below the smallest number: all that counts is whether it is 0
    std::uint64_t kept = fraction >> shift;
    const std::uint64_t rest = fraction & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    const bool away = round == Round::nearest ? rest > half || (rest == half && (kept & 1))
                      : round == Round::zero  ? false
                      : round == Round::up    ? rest && !sign
                                              : rest && sign;
    kept += away;
    // A carry out of the fraction increments the exponent.
    std::uint64_t magnitude = kept + (static_cast<std::uint64_t>(exponent + kBias - 1) << kFraction);
    if (magnitude >= kInfinity) {
      const bool to_infinity = round == Round::nearest || (round == Round::up && !sign) || (round == Round::down && sign);
      magnitude = to_infinity ? kInfinity : kInfinity - 1;
    }
    return sign | static_cast<std::uint16_t>(magnitude);
  }
};

inline float saturated(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN becomes 0

// Half precision. Uses the conversion instructions of the processor if it has them, because candidates convert millions
// of numbers.
struct HalfFormat : SmallFormat<10> {
#if defined(__F16C__) && defined(__x86_64__)
  static std::uint16_t from_float(float x) { return std::isnan(x) ? kNaN : std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)); }
  static float to_float(std::uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
#else
  static std::uint16_t from_float(float x) { return from(x); }
  static float to_float(std::uint16_t bits) {
    const unsigned magnitude = bits & 0x7FFF, sign = static_cast<unsigned>(bits & 0x8000) << 16;
    if (magnitude >= kInfinity) return std::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FF) << 13);
    const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;  // gives the exponent the bias of float
    return sign ? -value : value;
  }
#endif
};

// bfloat16: the upper half of a float, rounded to nearest even.
struct BFloat16Format : SmallFormat<7> {
  static std::uint16_t from_float(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return std::isnan(x) ? kNaN : static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  static float to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

// Rounds an integer. A 64-bit integer may have more bits than the fraction of a double. Then one bit records whether
// any of the lost bits was set, so that the second rounding is right.
template <class Format, class Integer>
std::uint16_t from_integer(Integer x, Round round) {
  const bool negative = x < Integer(0);
  std::uint64_t magnitude = negative ? ~static_cast<std::uint64_t>(x) + 1 : static_cast<std::uint64_t>(x);
  if (magnitude >> 53) magnitude = (magnitude & ~0x7FFull) | ((magnitude & 0x7FF) ? 0x800 : 0);
  const double value = static_cast<double>(magnitude);
  return Format::from(negative ? -value : value, round);
}

// Returns the sum of two doubles, rounded to odd. A second rounding, to at most 50 bits, then gives the correct result.
// S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd".
inline double add_to_odd(double a, double b) {
  volatile double sum = a + b;  // volatile: contraction would remove the error term
  if (!std::isfinite(sum)) return sum;
  volatile double part = sum - a;
  volatile double rest = sum - part;
  const double error = (a - rest) + (b - part);
  if (error == 0 || (std::bit_cast<std::uint64_t>(static_cast<double>(sum)) & 1)) return sum;
  const double towards = error > 0 ? INFINITY : -INFINITY;
  return std::nextafter(static_cast<double>(sum), towards);
}

// Rounds a float to an integer. A value out of range becomes the nearest integer in range.
template <class Integer>
Integer to_integer(float value, Round round) {
  if (std::isnan(value)) return sizeof(Integer) == 8 ? static_cast<Integer>(1ull << 63) : Integer(0);
  const double whole = round == Round::nearest ? std::nearbyint(value) : round == Round::zero ? std::trunc(value)
                       : round == Round::up    ? std::ceil(value)
                                               : std::floor(value);
  constexpr Integer lowest = static_cast<Integer>(-1) < 0 ? static_cast<Integer>(1ull << (8 * sizeof(Integer) - 1)) : Integer(0);
  constexpr Integer highest = static_cast<Integer>(~lowest);
  if (whole <= static_cast<double>(lowest)) return lowest;
  if (whole >= static_cast<double>(highest)) return highest;
  return static_cast<Integer>(whole);
}

}  // namespace emulator
