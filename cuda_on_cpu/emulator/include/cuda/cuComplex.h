// CUDA's complex numbers for C.
#pragma once
#include <cmath>

#include "emulator/vectors.h"

typedef float2 cuFloatComplex, cuComplex;
typedef double2 cuDoubleComplex;

#define EMULATOR_COMPLEX(TYPE, T, SUFFIX)                                                                             \
  inline TYPE make_##TYPE(T re, T im) { return {re, im}; }                                                            \
  inline T cuCreal##SUFFIX(TYPE z) { return z.x; }                                                                    \
  inline T cuCimag##SUFFIX(TYPE z) { return z.y; }                                                                    \
  inline TYPE cuConj##SUFFIX(TYPE z) { return {z.x, -z.y}; }                                                          \
  inline TYPE cuCadd##SUFFIX(TYPE a, TYPE b) { return {a.x + b.x, a.y + b.y}; }                                       \
  inline TYPE cuCsub##SUFFIX(TYPE a, TYPE b) { return {a.x - b.x, a.y - b.y}; }                                       \
  inline TYPE cuCmul##SUFFIX(TYPE a, TYPE b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }               \
  inline TYPE cuCfma##SUFFIX(TYPE a, TYPE b, TYPE c) { return cuCadd##SUFFIX(cuCmul##SUFFIX(a, b), c); }              \
  inline T cuCabs##SUFFIX(TYPE z) { return std::hypot(z.x, z.y); }                                                    \
  inline TYPE cuCdiv##SUFFIX(TYPE a, TYPE b) { /* scaled, so that no square overflows */                              \
    const T scale = 1 / (std::abs(b.x) + std::abs(b.y)), x = b.x * scale, y = b.y * scale, norm = 1 / (x * x + y * y); \
    return {(a.x * scale * x + a.y * scale * y) * norm, (a.y * scale * x - a.x * scale * y) * norm};                  \
  }
EMULATOR_COMPLEX(cuFloatComplex, float, f)
EMULATOR_COMPLEX(cuDoubleComplex, double, )
#undef EMULATOR_COMPLEX
inline cuComplex make_cuComplex(float re, float im) { return {re, im}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return {z.x, z.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) { return {static_cast<float>(z.x), static_cast<float>(z.y)}; }
