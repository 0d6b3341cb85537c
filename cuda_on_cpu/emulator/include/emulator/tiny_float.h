// Conversions to and from floating types of 4, 6 and 8 bits. tiny_float_types.h has the types.
#pragma once
#include <cmath>
#include <cstdint>

#include "emulator/half.h"
#include "emulator/bfloat16.h"

enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };
typedef enum { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;

namespace emulator {

// A format with `kExponent` and `kFraction` bits and a sign. Only E5M2 has infinities; E4M3 has one NaN with each sign;
// the smaller formats have neither. https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
template <int kExponent, int kFraction>
struct TinyFormat {
  static constexpr bool kHasInfinity = kExponent == 5 && kFraction == 2, kHasNaN = kExponent + kFraction == 7;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr unsigned kSign = 1u << (kExponent + kFraction), kMagnitude = kSign - 1;
  static constexpr unsigned kNaN = kHasNaN ? kMagnitude : 0, kInfinity = kMagnitude - kFraction - 1;
  static constexpr unsigned kLargest = kHasInfinity ? kInfinity - 1 : kHasNaN ? kMagnitude - 1 : kMagnitude;

  static double to_double(unsigned bits) {
    const unsigned magnitude = bits & kMagnitude, fraction = magnitude & ((1u << kFraction) - 1);
    const int exponent = static_cast<int>(magnitude >> kFraction);
    const double sign = bits & kSign ? -1.0 : 1.0;
    if (kHasInfinity && magnitude == kInfinity) return sign * INFINITY;
    if (kHasNaN && (kHasInfinity ? magnitude > kInfinity : magnitude == kNaN)) return NAN;
    if (!exponent) return sign * std::ldexp(fraction, 1 - kBias - kFraction);
    return sign * std::ldexp((1u << kFraction) | fraction, exponent - kBias - kFraction);
  }

  // Rounds a double, which every float, half and bfloat16 is. Too large values become the largest one if `saturates` or if
  // the format has nothing else, otherwise infinity, or NaN in E4M3.
  static unsigned from(double value, bool saturates, cudaRoundMode mode = cudaRoundNearest) {
    const unsigned sign = std::signbit(value) ? kSign : 0;
    if (std::isnan(value)) return kHasNaN ? kMagnitude : kLargest;  // CUDA: the sign is lost, and without NaN the largest
    if (value == 0) return sign;
    const double magnitude = std::fabs(value);
    const unsigned beyond = sign | (saturates || !kHasNaN ? kLargest : kHasInfinity ? kInfinity : kNaN);
    if (std::isinf(magnitude)) return beyond;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int lowest = 1 - kBias, power = (exponent - 1 < lowest ? lowest : exponent - 1) - kFraction;
    const double scaled = std::ldexp(magnitude, -power), whole = std::floor(scaled), rest = scaled - whole;
    const bool odd = std::fmod(whole, 2) != 0;
    const bool away = mode == cudaRoundNearest ? rest > 0.5 || (rest == 0.5 && odd)
                      : mode == cudaRoundZero  ? false
                      : mode == cudaRoundPosInf ? rest > 0 && !sign
                                                : rest > 0 && sign;
    // In units of the last fraction bit. A carry increments the exponent.
    const double bits = whole + away + std::ldexp(power + kFraction + kBias - 1, kFraction);
    return bits > kLargest ? beyond : sign | static_cast<unsigned>(bits);
  }
};
using E4M3 = TinyFormat<4, 3>;
using E5M2 = TinyFormat<5, 2>;
using E2M3 = TinyFormat<2, 3>;
using E3M2 = TinyFormat<3, 2>;
using E2M1 = TinyFormat<2, 1>;

// A power of two: 8 bits of exponent, without a sign. 0xFF is NaN.
inline unsigned char to_e8m0(double value, bool saturates, cudaRoundMode mode) {
  if (std::isnan(value)) return 0xFF;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return saturates ? 0xFE : 0xFF;
  if (magnitude == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // from 0.5 to 1
  int power = exponent - 1 + (mode == cudaRoundPosInf && fraction > 0.5);
  if (power > 127) return saturates ? 0xFE : 0xFF;
  return static_cast<unsigned char>((power < -127 ? -127 : power) + 127);
}
inline double from_e8m0(unsigned char bits) { return bits == 0xFF ? NAN : std::ldexp(1.0, static_cast<int>(bits) - 127); }

inline __half_raw half_of(double value) { return __half_raw{HalfFormat::from(value)}; }
inline double of_raw(__half_raw raw) { return HalfFormat::to_float(raw.x); }
inline double of_raw(__nv_bfloat16_raw raw) { return BFloat16Format::to_float(raw.x); }

}  // namespace emulator
