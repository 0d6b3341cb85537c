// Device functions of one thread: directed rounding, integer bits, casts, cached access, clocks. A fast approximation,
// such as __expf, is here as accurate as the function that it approximates, unless its error may be large.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

#include "emulator/scheduler.h"
#include "emulator/small_float.h"
#include "emulator/vectors.h"

// --------------------------------------------------------------------------------------------- min, max

// The overloads of min and max that CUDA has, including its pairs of different types. A call with any other pair is
// ambiguous, as with nvcc.
#define EMULATOR_MIN_MAX(A, B, T)                                         \
  constexpr T min(A a, B b) { return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a); } \
  constexpr T max(A a, B b) { return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a); }
#define EMULATOR_MIN_MAX_OF(T)                  \
  EMULATOR_MIN_MAX(T, T, T)                     \
  EMULATOR_MIN_MAX(unsigned T, T, unsigned T)   \
  EMULATOR_MIN_MAX(T, unsigned T, unsigned T)   \
  EMULATOR_MIN_MAX(unsigned T, unsigned T, unsigned T)
EMULATOR_MIN_MAX_OF(int)
EMULATOR_MIN_MAX_OF(long)
EMULATOR_MIN_MAX_OF(long long)
#undef EMULATOR_MIN_MAX_OF
#undef EMULATOR_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }

// ------------------------------------------------------------------------------------- rounded arithmetic

namespace emulator {

// These functions round float and double results in a given direction. They compute the result exactly in a wider type,
// or correct the nearest result by the sign of its error.
inline double directed(double nearest, double error, Round round) {
  if (error == 0 || !std::isfinite(nearest) || round == Round::nearest) return nearest;
  const bool up = round == Round::up || (round == Round::zero && nearest < 0);
  if ((error > 0) == up) return std::nextafter(nearest, up ? INFINITY : -INFINITY);
  return nearest;
}
inline float directed_float(double exact, Round round) {
  const float nearest = static_cast<float>(exact);
  if (round == Round::nearest || std::isnan(exact) || static_cast<double>(nearest) == exact) return nearest;
  if (std::isinf(exact)) return nearest;
  const bool above = nearest > exact;
  if (round == Round::down || (round == Round::zero && exact > 0)) return above ? std::nextafter(nearest, -INFINITY) : nearest;
  return above ? nearest : std::nextafter(nearest, INFINITY);
}
// The double sum is rounded to odd: a sum that rounds to a tie between two floats would make the second rounding wrong.
inline float sum_float(double a, double b, Round round) { return directed_float(add_to_odd(a, b), round); }
inline double quotient_to_odd(double a, double b) {
  const double quotient = a / b, error = std::fma(-quotient, b, a) * (b < 0 ? -1 : 1);
  if (!std::isfinite(quotient) || !std::isfinite(error) || error == 0 || std::bit_cast<std::uint64_t>(quotient) & 1) return quotient;
  return std::nextafter(quotient, error > 0 ? INFINITY : -INFINITY);
}
inline double root_to_odd(double x) {
  const double root = std::sqrt(x), error = std::fma(-root, root, x);
  if (!std::isfinite(root) || error == 0 || std::bit_cast<std::uint64_t>(root) & 1) return root;
  return std::nextafter(root, error > 0 ? INFINITY : -INFINITY);
}

}  // namespace emulator

#define EMULATOR_ROUNDED(SUFFIX, DIRECTION)                                                                                      \
  inline float __fadd_##SUFFIX(float a, float b) { return emulator::sum_float(a, b, emulator::Round::DIRECTION); }               \
  inline float __fsub_##SUFFIX(float a, float b) { return emulator::sum_float(a, -b, emulator::Round::DIRECTION); }              \
  inline float __fmul_##SUFFIX(float a, float b) { return emulator::directed_float(static_cast<double>(a) * b, emulator::Round::DIRECTION); } \
  inline float __fmaf_##SUFFIX(float a, float b, float c) { return emulator::sum_float(static_cast<double>(a) * b, c, emulator::Round::DIRECTION); } \
  inline float __double2float_##SUFFIX(double a) { return emulator::directed_float(a, emulator::Round::DIRECTION); }             \
  inline float __int2float_##SUFFIX(int a) { return emulator::directed_float(a, emulator::Round::DIRECTION); }                   \
  inline float __uint2float_##SUFFIX(unsigned a) { return emulator::directed_float(a, emulator::Round::DIRECTION); }             \
  inline int __float2int_##SUFFIX(float a) { return emulator::to_integer<int>(a, emulator::Round::DIRECTION); }                  \
  inline unsigned __float2uint_##SUFFIX(float a) { return emulator::to_integer<unsigned>(a, emulator::Round::DIRECTION); }       \
  inline long long __float2ll_##SUFFIX(float a) { return emulator::to_integer<long long>(a, emulator::Round::DIRECTION); }       \
  inline unsigned long long __float2ull_##SUFFIX(float a) { return emulator::to_integer<unsigned long long>(a, emulator::Round::DIRECTION); } \
  inline int __double2int_##SUFFIX(double a) { return emulator::to_integer<int>(a, emulator::Round::DIRECTION); }                \
  inline unsigned __double2uint_##SUFFIX(double a) { return emulator::to_integer<unsigned>(a, emulator::Round::DIRECTION); }     \
  inline long long __double2ll_##SUFFIX(double a) { return emulator::to_integer<long long>(a, emulator::Round::DIRECTION); }     \
  inline unsigned long long __double2ull_##SUFFIX(double a) { return emulator::to_integer<unsigned long long>(a, emulator::Round::DIRECTION); }
EMULATOR_ROUNDED(rn, nearest)
EMULATOR_ROUNDED(rz, zero)
EMULATOR_ROUNDED(rd, down)
EMULATOR_ROUNDED(ru, up)
#undef EMULATOR_ROUNDED
#define EMULATOR_ROUNDED(SUFFIX, DIRECTION)                                                                                         \
  inline float __fdiv_##SUFFIX(float a, float b) { return emulator::directed_float(emulator::quotient_to_odd(a, b), emulator::Round::DIRECTION); } \
  inline float __frcp_##SUFFIX(float a) { return __fdiv_##SUFFIX(1.0f, a); }                                                        \
  inline float __fsqrt_##SUFFIX(float a) { return emulator::directed_float(emulator::root_to_odd(a), emulator::Round::DIRECTION); }
EMULATOR_ROUNDED(rz, zero)
EMULATOR_ROUNDED(rd, down)
EMULATOR_ROUNDED(ru, up)
#undef EMULATOR_ROUNDED
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __ll2float_rn(long long a) { return static_cast<float>(a); }
inline float __ull2float_rn(unsigned long long a) { return static_cast<float>(a); }
inline double __ll2double_rn(long long a) { return static_cast<double>(a); }
inline double __ull2double_rn(unsigned long long a) { return static_cast<double>(a); }
inline double __int2double_rn(int a) { return a; }
inline double __uint2double_rn(unsigned a) { return a; }
inline double __dadd_rn(double a, double b) { volatile double sum = a + b; return sum; }
inline double __dsub_rn(double a, double b) { volatile double difference = a - b; return difference; }
inline double __dmul_rn(double a, double b) { volatile double product = a * b; return product; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double a) { return 1 / a; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1 / sqrt(static_cast<double>(a))); }

// ------------------------------------------------------------------------------------------ approximations

namespace emulator {
// The largest error of tanh.approx.f32 is 2^-11 of the result, as that of a number rounded to 11 bits:
// https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-tanh
inline float rounded_to_11_bits(float x) {
  if (std::isnan(x)) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu);
}
// The angle in turns, from -0.5 to 0.5, by one multiplication in float32. So the error of __sinf(x) and __cosf(x) is at
// most 2^-21 for x in [-pi, pi] and grows with x, as the CUDA programming guide says ("Intrinsic Functions").
inline double turns(float x) {
  const float turns = x * 0.15915494f;
  return static_cast<double>(turns) - std::rint(static_cast<double>(turns));
}
inline float sine_of_turns(float x) { return static_cast<float>(sin(2 * M_PI * turns(x))); }
inline float cosine_of_turns(float x) { return static_cast<float>(cos(2 * M_PI * turns(x))); }
}  // namespace emulator

// The same guide says how __powf and __tanf are computed.
inline float __fdividef(float a, float b) { return a / b; }
inline double fdivide(double a, double b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return static_cast<float>(pow(10.0, x)); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return exp2f(y * log2f(x)); }
inline float __sinf(float x) { return emulator::sine_of_turns(x); }
inline float __cosf(float x) { return emulator::cosine_of_turns(x); }
inline float __tanf(float x) { return emulator::sine_of_turns(x) * (1.0f / emulator::cosine_of_turns(x)); }
inline float __tanhf(float x) { return emulator::rounded_to_11_bits(tanhf(x)); }
inline void __sincosf(float x, float* s, float* c) { *s = emulator::sine_of_turns(x), *c = emulator::cosine_of_turns(x); }
inline float __saturatef(float x) { return emulator::saturated(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline void sincospi(double x, double* s, double* c) { *s = sin(M_PI * remainder(x, 2.0)), *c = cos(M_PI * remainder(x, 2.0)); }
inline void sincospif(float x, float* s, float* c) { *s = static_cast<float>(sin(M_PI * x)), *c = static_cast<float>(cos(M_PI * x)); }
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * remainder(x, 2.0))); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * remainder(x, 2.0))); }
inline double sinpi(double x) { return sin(M_PI * remainder(x, 2.0)); }
inline double cospi(double x) { return cos(M_PI * remainder(x, 2.0)); }
inline float norm3df(float a, float b, float c) { return static_cast<float>(sqrt(static_cast<double>(a) * a + static_cast<double>(b) * b + static_cast<double>(c) * c)); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
inline float normcdff(float x) { return static_cast<float>(0.5 * erfc(-x * M_SQRT1_2)); }
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
// Beyond |x| = 1000, where the function of the standard library may throw, the result is infinite in double precision.
inline double cyl_bessel_i0(double x) { return fabs(x) > 1000 ? HUGE_VAL : std::cyl_bessel_i(0, fabs(x)); }
inline double cyl_bessel_i1(double x) { return copysign(fabs(x) > 1000 ? HUGE_VAL : std::cyl_bessel_i(1, fabs(x)), x); }
inline float cyl_bessel_i0f(float x) { return static_cast<float>(cyl_bessel_i0(x)); }
inline float cyl_bessel_i1f(float x) { return static_cast<float>(cyl_bessel_i1(x)); }
inline float erfcxf(float x) { return static_cast<float>(exp(static_cast<double>(x) * x) * erfc(static_cast<double>(x))); }

// ------------------------------------------------------------------------------------------------ integers

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long out = 0;
  for (int i = 0; i < 64; ++i) out |= (x >> i & 1) << (63 - i);
  return out;
}
inline unsigned __brev(unsigned x) { return static_cast<unsigned>(__brevll(x) >> 32); }
// Each of the four low nibbles of the selector picks one of the eight bytes of b:a. If the top bit of the nibble is
// set, the result byte is eight copies of the picked byte's sign bit.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> 4 * i & 15, byte = bytes >> 8 * (nibble & 7) & 0xFF;
    out |= (nibble & 8 ? (byte & 0x80 ? 0xFFu : 0) : byte) << 8 * i;
  }
  return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) { return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) << (shift & 31) >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) { return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (shift & 31)); }
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) { return shift >= 32 ? low : __funnelshift_l(low, high, shift); }
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) { return shift >= 32 ? high : __funnelshift_r(low, high, shift); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64); }
inline int __mul24(int a, int b) { return static_cast<int>(static_cast<unsigned>(a << 8 >> 8) * static_cast<unsigned>(b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xFFFFFF) * (b & 0xFFFFFF); }
inline unsigned __sad(int a, int b, unsigned c) { return c + static_cast<unsigned>(a < b ? static_cast<std::int64_t>(b) - a : static_cast<std::int64_t>(a) - b); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<std::uint64_t>(a) + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<std::uint64_t>(a) + b + 1) >> 1); }
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 0xFF) * (b >> 8 * i & 0xFF);
  return c;
}
// The SIMD intrinsics treat a word as four bytes, or as two numbers of 16 bits. A suffix s or u says whether these are
// signed, and ss or us that the result saturates.
namespace emulator {
template <class T, class Function>
unsigned simd(unsigned a, unsigned b, Function function) {
  unsigned out = 0;
  for (unsigned at = 0; at < 32; at += 8 * sizeof(T)) {
    const int value = function(static_cast<int>(static_cast<T>(a >> at)), static_cast<int>(static_cast<T>(b >> at)));
    out |= static_cast<unsigned>(static_cast<std::make_unsigned_t<T>>(value)) << at;
  }
  return out;
}
template <class T>
int clamped(int value) { return value < std::numeric_limits<T>::min() ? std::numeric_limits<T>::min() : value > std::numeric_limits<T>::max() ? std::numeric_limits<T>::max() : value; }
template <class T>
unsigned simd_distance(unsigned a, unsigned b) {
  unsigned out = 0;
  for (unsigned at = 0; at < 32; at += 8 * sizeof(T)) out += static_cast<unsigned>(abs(static_cast<T>(a >> at) - static_cast<T>(b >> at)));
  return out;
}
}  // namespace emulator
#define EMULATOR_SIMD(NAME, T, EXPRESSION) \
  inline unsigned NAME(unsigned first, unsigned second) { return emulator::simd<T>(first, second, [](int a, int b) -> int { return EXPRESSION; }); }
#define EMULATOR_SIMD_OF(N, S, U)                                   \
  EMULATOR_SIMD(__vadd##N, U, a + b)                                \
  EMULATOR_SIMD(__vsub##N, U, a - b)                                \
  EMULATOR_SIMD(__vaddss##N, S, emulator::clamped<S>(a + b))        \
  EMULATOR_SIMD(__vaddus##N, U, emulator::clamped<U>(a + b))        \
  EMULATOR_SIMD(__vsubss##N, S, emulator::clamped<S>(a - b))        \
  EMULATOR_SIMD(__vsubus##N, U, emulator::clamped<U>(a - b))        \
  EMULATOR_SIMD(__vabsdiffs##N, S, abs(a - b))                      \
  EMULATOR_SIMD(__vabsdiffu##N, U, abs(a - b))                      \
  EMULATOR_SIMD(__vavgs##N, S, (a + b + 1 - (a + b < 0)) >> 1)      \
  EMULATOR_SIMD(__vavgu##N, U, (a + b + 1) >> 1)                    \
  EMULATOR_SIMD(__vhaddu##N, U, (a + b) >> 1)                       \
  EMULATOR_SIMD(__vmaxs##N, S, max(a, b))                           \
  EMULATOR_SIMD(__vmaxu##N, U, max(a, b))                           \
  EMULATOR_SIMD(__vmins##N, S, min(a, b))                           \
  EMULATOR_SIMD(__vminu##N, U, min(a, b))                           \
  EMULATOR_SIMD_COMPARE(N, S, U, eq, ==)                            \
  EMULATOR_SIMD_COMPARE(N, S, U, ne, !=)                            \
  EMULATOR_SIMD_COMPARE(N, S, S, gts, >)                            \
  EMULATOR_SIMD_COMPARE(N, S, U, gtu, >)                            \
  EMULATOR_SIMD_COMPARE(N, S, S, ges, >=)                           \
  EMULATOR_SIMD_COMPARE(N, S, U, geu, >=)                           \
  EMULATOR_SIMD_COMPARE(N, S, S, lts, <)                            \
  EMULATOR_SIMD_COMPARE(N, S, U, ltu, <)                            \
  EMULATOR_SIMD_COMPARE(N, S, S, les, <=)                           \
  EMULATOR_SIMD_COMPARE(N, S, U, leu, <=)                           \
  inline unsigned __vneg##N(unsigned x) { return __vsub##N(0, x); } \
  inline unsigned __vabs##N(unsigned x) { return __vabsdiffs##N(x, 0); } \
  inline unsigned __vsads##N(unsigned a, unsigned b) { return emulator::simd_distance<S>(a, b); } \
  inline unsigned __vsadu##N(unsigned a, unsigned b) { return emulator::simd_distance<U>(a, b); }
#define EMULATOR_SIMD_COMPARE(N, S, T, NAME, OP)       \
  EMULATOR_SIMD(__vcmp##NAME##N, T, a OP b ? -1 : 0)   \
  EMULATOR_SIMD(__vset##NAME##N, T, a OP b)
EMULATOR_SIMD_OF(4, std::int8_t, std::uint8_t)
EMULATOR_SIMD_OF(2, std::int16_t, std::uint16_t)
#undef EMULATOR_SIMD_OF
#undef EMULATOR_SIMD_COMPARE
#undef EMULATOR_SIMD
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return mask >> base & 1 ? base : ~0u;
  const int step = offset > 0 ? 1 : -1;
  for (int i = static_cast<int>(base), left = offset > 0 ? offset : -offset; i >= 0 && i < 32; i += step)
    if (mask >> i & 1 && --left == 0) return static_cast<unsigned>(i);
  return ~0u;
}

// --------------------------------------------------------------------------------------------------- casts

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x)); }
inline double __hiloint2double(int high, int low) { return std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low)); }

// ------------------------------------------------------------------------- cached access, time, and traps

#define EMULATOR_CACHED(T)                                     \
  inline T __ldg(const T* address) { return *address; }        \
  inline T __ldca(const T* address) { return *address; }       \
  inline T __ldcg(const T* address) { return *address; }       \
  inline T __ldcs(const T* address) { return *address; }       \
  inline T __ldlu(const T* address) { return *address; }       \
  inline T __ldcv(const T* address) { return *address; }       \
  inline void __stwb(T* address, T value) { *address = value; }\
  inline void __stcg(T* address, T value) { *address = value; }\
  inline void __stcs(T* address, T value) { *address = value; }\
  inline void __stwt(T* address, T value) { *address = value; }
#define EMULATOR_CACHED_VECTORS(NAME) EMULATOR_CACHED(NAME##2) EMULATOR_CACHED(NAME##4)
EMULATOR_CACHED(char)
EMULATOR_CACHED(signed char)
EMULATOR_CACHED(unsigned char)
EMULATOR_CACHED(short)
EMULATOR_CACHED(unsigned short)
EMULATOR_CACHED(int)
EMULATOR_CACHED(unsigned)
EMULATOR_CACHED(long)
EMULATOR_CACHED(unsigned long)
EMULATOR_CACHED(long long)
EMULATOR_CACHED(unsigned long long)
EMULATOR_CACHED(float)
EMULATOR_CACHED(double)
EMULATOR_CACHED_VECTORS(char)
EMULATOR_CACHED_VECTORS(uchar)
EMULATOR_CACHED_VECTORS(short)
EMULATOR_CACHED_VECTORS(ushort)
EMULATOR_CACHED_VECTORS(int)
EMULATOR_CACHED_VECTORS(uint)
EMULATOR_CACHED(longlong2)
EMULATOR_CACHED(ulonglong2)
EMULATOR_CACHED_VECTORS(float)
EMULATOR_CACHED(double2)
#undef EMULATOR_CACHED_VECTORS

// Returns the time of a steady clock in nanoseconds.
inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
inline void __nanosleep(unsigned) { emulator::yield(); }
[[noreturn]] inline void __trap(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::trap_at(file, line); }
inline void __brkpt() {}
inline void __prof_trigger(int) {}
#define __builtin_assume(condition) static_cast<void>(0)
inline std::size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline std::size_t __cvta_generic_to_global(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline unsigned __isShared(const void* address) { return emulator::is_shared(address); }
inline unsigned __isLocal(const void* address) { return emulator::is_local(address); }
inline unsigned __isGlobal(const void* address, EMULATOR_CALLER) { return emulator::is_in_space(emulator::Space::kGlobal, address, place); }
inline unsigned __isConstant(const void* address, EMULATOR_CALLER) { return emulator::is_in_space(emulator::Space::kConstant, address, place); }
