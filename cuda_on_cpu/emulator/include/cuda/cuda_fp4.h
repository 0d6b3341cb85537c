// FP4 numbers: E2M1. A byte has two. https://docs.nvidia.com/cuda/cuda-math-api/cuda_math_api/group__CUDA__MATH__INTRINSIC__FP4.html
#pragma once
#include "emulator/tiny_float.h"

typedef unsigned char __nv_fp4_storage_t;
typedef unsigned char __nv_fp4x2_storage_t;
typedef unsigned short int __nv_fp4x4_storage_t;
typedef enum { __NV_E2M1 } __nv_fp4_interpretation_t;

#define EMULATOR_KIND fp4
#define EMULATOR_ROUND(x, kind, mode) emulator::E2M1::from(x, true, mode)
#define EMULATOR_VALUE(x, kind) emulator::E2M1::to_double(x)
#define EMULATOR_WIDTH 4
#include "emulator/tiny_float_calls.inc"

#define EMULATOR_TINY __nv_fp4_e2m1
#define EMULATOR_TINY2 __nv_fp4x2_e2m1
#define EMULATOR_TINY4 __nv_fp4x4_e2m1
#define EMULATOR_BITS1 __nv_fp4_storage_t
#define EMULATOR_BITS2 __nv_fp4x2_storage_t
#define EMULATOR_BITS4 __nv_fp4x4_storage_t
#define EMULATOR_FORMAT emulator::E2M1
#define EMULATOR_WIDTH 4
#include "emulator/tiny_float_types.inc"
