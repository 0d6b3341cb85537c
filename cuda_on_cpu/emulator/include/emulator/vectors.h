// CUDA's vector types, with CUDA's sizes and alignments, and their constructors. CUDA defines no arithmetic on them.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#built-in-vector-types
#pragma once
#include "emulator/dim3.h"

#define EMULATOR_VECTORS(NAME, T, ALIGN2, ALIGN4)                                  \
  struct NAME##1 { T x; };                                                         \
  struct alignas(ALIGN2) NAME##2 { T x, y; };                                      \
  struct NAME##3 { T x, y, z; };                                                   \
  struct alignas(ALIGN4) NAME##4 { T x, y, z, w; };                                \
  EMULATOR_MAKERS(NAME, T)
#define EMULATOR_MAKERS(NAME, T)                                                   \
  constexpr NAME##1 make_##NAME##1(T x) { return {x}; }                            \
  constexpr NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                    \
  constexpr NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }            \
  constexpr NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATOR_VECTORS(char, signed char, 2, 4)
EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(long, long, 16, 16)
EMULATOR_VECTORS(ulong, unsigned long, 16, 16)
EMULATOR_VECTORS(longlong, long long, 16, 16)
EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)
// Since CUDA 13, vectors of 32 bytes name their alignment.
#define EMULATOR_ALIGNED(NAME, T, ALIGN)                                            \
  struct alignas(ALIGN) NAME##4_##ALIGN##a { T x, y, z, w; };                       \
  constexpr NAME##4_##ALIGN##a make_##NAME##4_##ALIGN##a(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMULATOR_BOTH_ALIGNED(NAME, T) EMULATOR_ALIGNED(NAME, T, 16) EMULATOR_ALIGNED(NAME, T, 32)
EMULATOR_BOTH_ALIGNED(long, long)
EMULATOR_BOTH_ALIGNED(ulong, unsigned long)
EMULATOR_BOTH_ALIGNED(longlong, long long)
EMULATOR_BOTH_ALIGNED(ulonglong, unsigned long long)
EMULATOR_BOTH_ALIGNED(double, double)
#undef EMULATOR_BOTH_ALIGNED
#undef EMULATOR_ALIGNED
// uint3 is the type of the built-in indices, so dim3.h defines it.
struct uint1 { unsigned x; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
EMULATOR_MAKERS(uint, unsigned)

#undef EMULATOR_MAKERS
#undef EMULATOR_VECTORS
