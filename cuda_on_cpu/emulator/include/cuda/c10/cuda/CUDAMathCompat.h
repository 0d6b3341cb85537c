// Math functions with one name for float and double.
#pragma once
#include <cuda_runtime.h>

namespace c10::cuda::compat {
#define EMULATOR_COMPAT(NAME)                             \
  inline float NAME(float x) { return ::NAME##f(x); }     \
  inline double NAME(double x) { return ::NAME(x); }
EMULATOR_COMPAT(ceil)
EMULATOR_COMPAT(exp)
EMULATOR_COMPAT(floor)
EMULATOR_COMPAT(log)
EMULATOR_COMPAT(log1p)
EMULATOR_COMPAT(sqrt)
EMULATOR_COMPAT(rsqrt)
EMULATOR_COMPAT(sin)
EMULATOR_COMPAT(cos)
EMULATOR_COMPAT(tan)
EMULATOR_COMPAT(tanh)
EMULATOR_COMPAT(normcdf)
#undef EMULATOR_COMPAT
inline float abs(float x) { return ::fabsf(x); }
inline double abs(double x) { return ::fabs(x); }
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }
inline float min(float a, float b) { return ::fminf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline float pow(float a, float b) { return ::powf(a, b); }
inline double pow(double a, double b) { return ::pow(a, b); }
inline float copysign(float a, float b) { return ::copysignf(a, b); }
inline double copysign(double a, double b) { return ::copysign(a, b); }
}  // namespace c10::cuda::compat
