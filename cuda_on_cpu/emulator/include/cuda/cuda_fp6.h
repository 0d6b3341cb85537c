// FP6 numbers: E2M3 and E3M2, each in a byte. https://docs.nvidia.com/cuda/cuda-math-api/cuda_math_api/group__CUDA__MATH__INTRINSIC__FP6.html
#pragma once
#include "emulator/tiny_float.h"

typedef unsigned char __nv_fp6_storage_t;
typedef unsigned short int __nv_fp6x2_storage_t;
typedef unsigned int __nv_fp6x4_storage_t;
typedef enum { __NV_E2M3, __NV_E3M2 } __nv_fp6_interpretation_t;

#define EMULATOR_KIND fp6
#define EMULATOR_ROUND(x, kind, mode) (kind == __NV_E2M3 ? emulator::E2M3::from(x, true, mode) : emulator::E3M2::from(x, true, mode))
#define EMULATOR_VALUE(x, kind) (kind == __NV_E2M3 ? emulator::E2M3::to_double(x) : emulator::E3M2::to_double(x))
#define EMULATOR_WIDTH 8
#include "emulator/tiny_float_calls.inc"

#define EMULATOR_TINY __nv_fp6_e2m3
#define EMULATOR_TINY2 __nv_fp6x2_e2m3
#define EMULATOR_TINY4 __nv_fp6x4_e2m3
#define EMULATOR_BITS1 __nv_fp6_storage_t
#define EMULATOR_BITS2 __nv_fp6x2_storage_t
#define EMULATOR_BITS4 __nv_fp6x4_storage_t
#define EMULATOR_FORMAT emulator::E2M3
#define EMULATOR_WIDTH 8
#include "emulator/tiny_float_types.inc"
#define EMULATOR_TINY __nv_fp6_e3m2
#define EMULATOR_TINY2 __nv_fp6x2_e3m2
#define EMULATOR_TINY4 __nv_fp6x4_e3m2
#define EMULATOR_BITS1 __nv_fp6_storage_t
#define EMULATOR_BITS2 __nv_fp6x2_storage_t
#define EMULATOR_BITS4 __nv_fp6x4_storage_t
#define EMULATOR_FORMAT emulator::E3M2
#define EMULATOR_WIDTH 8
#include "emulator/tiny_float_types.inc"
