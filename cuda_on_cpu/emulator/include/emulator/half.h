// __half and __half2: half precision (IEEE binary16), and pairs of such numbers.
#pragma once
#include "emulator/kernel.h"
#include "emulator/small_float.h"

#define EMULATOR_SMALL half
#define EMULATOR_TWICE 2half2
#define EMULATOR_H __half
#define EMULATOR_H2 __half2
#define EMULATOR_RAW __half_raw
#define EMULATOR_RAW2 __half2_raw
#define EMULATOR_FORMAT emulator::HalfFormat
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define EMULATOR_CONVERSIONS 0
#else
#define EMULATOR_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define EMULATOR_OPERATORS 0
#else
#define EMULATOR_OPERATORS 1
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define EMULATOR_OPERATORS2 0
#else
#define EMULATOR_OPERATORS2 1
#endif
#define EMULATOR_OTHER __nv_bfloat16
#define EMULATOR_OTHER_TO_FLOAT __bfloat162float
#include "emulator/small_float_type.inc"

// Constants of half precision, by their bits.
#define CUDART_INF_FP16 __ushort_as_half(static_cast<unsigned short>(0x7C00))
#define CUDART_NAN_FP16 __ushort_as_half(static_cast<unsigned short>(0x7FFF))
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(static_cast<unsigned short>(0x0001))
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(static_cast<unsigned short>(0x7BFF))
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x8000))
#define CUDART_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x0000))
#define CUDART_ONE_FP16 __ushort_as_half(static_cast<unsigned short>(0x3C00))

#ifndef CUDA_NO_HALF
typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half nv_half;
typedef __half2 nv_half2;
#endif
