// __nv_bfloat16 and __nv_bfloat162: bfloat16, which is the upper half of a float, and pairs of such numbers.
#pragma once
#include "emulator/kernel.h"
#include "emulator/small_float.h"

#define EMULATOR_SMALL bfloat16
#define EMULATOR_TWICE 2bfloat162
#define EMULATOR_H __nv_bfloat16
#define EMULATOR_H2 __nv_bfloat162
#define EMULATOR_RAW __nv_bfloat16_raw
#define EMULATOR_RAW2 __nv_bfloat162_raw
#define EMULATOR_FORMAT emulator::BFloat16Format
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define EMULATOR_CONVERSIONS 0
#else
#define EMULATOR_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define EMULATOR_OPERATORS 0
#else
#define EMULATOR_OPERATORS 1
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define EMULATOR_OPERATORS2 0
#else
#define EMULATOR_OPERATORS2 1
#endif
#define EMULATOR_OTHER __half
#define EMULATOR_OTHER_TO_FLOAT __half2float
#include "emulator/small_float_type.inc"

// Constants of bfloat16, by their bits.
#define CUDART_INF_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7F80))
#define CUDART_NAN_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7FFF))
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0001))
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7F7F))
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x8000))
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0000))
#define CUDART_ONE_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x3F80))

#ifndef CUDA_NO_BFLOAT16
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
#endif
