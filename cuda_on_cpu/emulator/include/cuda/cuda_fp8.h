// FP8 numbers: E4M3, E5M2 and the scale E8M0. https://docs.nvidia.com/cuda/cuda-math-api/cuda_math_api/group__CUDA__MATH__INTRINSIC__FP8.html
#pragma once
#include "emulator/tiny_float.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short int __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace emulator {
inline __nv_fp8_storage_t to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  const bool finite = saturate == __NV_SATFINITE;
  return static_cast<__nv_fp8_storage_t>(kind == __NV_E4M3 ? E4M3::from(x, finite) : E5M2::from(x, finite));
}
}  // namespace emulator

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  // CUDA converts a double by other code than a float: NaN keeps its sign.
  if (std::isnan(x)) return static_cast<__nv_fp8_storage_t>((kind == __NV_E4M3 ? 0x7F : 0x7E) | (std::signbit(x) ? 0x80 : 0));
  return emulator::to_fp8(x, saturate, kind);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  return emulator::half_of(kind == __NV_E4M3 ? emulator::E4M3::to_double(x) : emulator::E5M2::to_double(x));
}
inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 v, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_double_to_fp8(v.x, saturate, kind) | __nv_cvt_double_to_fp8(v.y, saturate, kind) << 8);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(emulator::to_fp8(v.x, saturate, kind) | emulator::to_fp8(v.y, saturate, kind) << 8);
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x), kind).x, __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x >> 8), kind).x};
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) { return emulator::to_fp8(x, saturate, kind); }
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) { return emulator::to_fp8(emulator::of_raw(x), saturate, kind); }
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2({static_cast<float>(emulator::of_raw(__half_raw{v.x})), static_cast<float>(emulator::of_raw(__half_raw{v.y}))}, saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) { return emulator::to_fp8(emulator::of_raw(x), saturate, kind); }
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw v, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2({static_cast<float>(emulator::of_raw(__nv_bfloat16_raw{v.x})), static_cast<float>(emulator::of_raw(__nv_bfloat16_raw{v.y}))}, saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_float_to_e8m0(float x, __nv_saturation_t saturate, cudaRoundMode mode) { return emulator::to_e8m0(x, saturate == __NV_SATFINITE, mode); }
inline __nv_fp8_storage_t __nv_cvt_double_to_e8m0(double x, __nv_saturation_t saturate, cudaRoundMode mode) { return emulator::to_e8m0(x, saturate == __NV_SATFINITE, mode); }
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_e8m0(__nv_bfloat16_raw x, __nv_saturation_t saturate, cudaRoundMode mode) { return emulator::to_e8m0(emulator::of_raw(x), saturate == __NV_SATFINITE, mode); }
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_e8m0x2(float2 v, __nv_saturation_t saturate, cudaRoundMode mode) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_e8m0(v.x, saturate, mode) | __nv_cvt_float_to_e8m0(v.y, saturate, mode) << 8);
}
inline __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(__nv_fp8_storage_t x) { return __nv_bfloat16_raw{emulator::BFloat16Format::from(emulator::from_e8m0(x))}; }

#define EMULATOR_TINY __nv_fp8_e4m3
#define EMULATOR_FROM_DOUBLE __nv_cvt_double_to_fp8(value, __NV_SATFINITE, __NV_E4M3)
#define EMULATOR_TINY2 __nv_fp8x2_e4m3
#define EMULATOR_TINY4 __nv_fp8x4_e4m3
#define EMULATOR_BITS1 __nv_fp8_storage_t
#define EMULATOR_BITS2 __nv_fp8x2_storage_t
#define EMULATOR_BITS4 __nv_fp8x4_storage_t
#define EMULATOR_FORMAT emulator::E4M3
#define EMULATOR_WIDTH 8
#include "emulator/tiny_float_types.inc"
#define EMULATOR_TINY __nv_fp8_e5m2
#define EMULATOR_FROM_DOUBLE __nv_cvt_double_to_fp8(value, __NV_SATFINITE, __NV_E5M2)
#define EMULATOR_TINY2 __nv_fp8x2_e5m2
#define EMULATOR_TINY4 __nv_fp8x4_e5m2
#define EMULATOR_BITS1 __nv_fp8_storage_t
#define EMULATOR_BITS2 __nv_fp8x2_storage_t
#define EMULATOR_BITS4 __nv_fp8x4_storage_t
#define EMULATOR_FORMAT emulator::E5M2
#define EMULATOR_WIDTH 8
#include "emulator/tiny_float_types.inc"

struct __nv_fp8_e8m0 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e8m0() = default;
  explicit __nv_fp8_e8m0(float x) : __x(emulator::to_e8m0(x, true, cudaRoundPosInf)) {}
  explicit __nv_fp8_e8m0(double x) : __x(emulator::to_e8m0(x, true, cudaRoundPosInf)) {}
  explicit __nv_fp8_e8m0(__nv_bfloat16 x) : __nv_fp8_e8m0(emulator::widened(x)) {}
  explicit __nv_fp8_e8m0(__half x) : __nv_fp8_e8m0(emulator::widened(x)) {}
  explicit operator float() const { return static_cast<float>(emulator::from_e8m0(__x)); }
  explicit operator double() const { return emulator::from_e8m0(__x); }
  explicit operator __nv_bfloat16() const { return __float2bfloat16_rn(static_cast<float>(*this)); }
};
