// What a kernel's own code can say: qualifiers and barriers here, the rest in the headers at the end.
#pragma once
#include "emulator/scheduler.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __managed__
#define __nv_pure__
#define __maxnreg__(...)
#define __cudart_builtin__
#define __device_builtin__
#define __inline_hint__
// One copy per core, which runs one block at a time: the block's threads share it, and no others. Aligned as it comes
// to lie on a GPU, where arrays of floats are read four at a time without asking for it.
#define __shared__ static thread_local __attribute__((aligned(16)))

constexpr int warpSize = emulator::kWarpSize;

__attribute__((always_inline)) inline void __syncthreads() { emulator::barrier(); }
inline int __syncthreads_count(int predicate) { return static_cast<int>(emulator::barrier(predicate != 0).count); }
inline int __syncthreads_and(int predicate) { return emulator::barrier(predicate != 0).all; }
inline int __syncthreads_or(int predicate) { return emulator::barrier(predicate != 0).any; }
__attribute__((always_inline)) inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { emulator::meet(mask, 0); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#include "emulator/atomics.h"
#include "emulator/intrinsics.h"
#include "emulator/vectors.h"
#include "emulator/warp.h"
