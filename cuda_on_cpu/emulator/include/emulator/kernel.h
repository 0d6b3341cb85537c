// The built-ins of kernel code. This header has qualifiers and barriers. The headers included at its end have the
// others.
#pragma once
#include "emulator/scheduler.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// The rewritten source has this at the start of a kernel with launch bounds.
#define EMULATOR_LAUNCH_BOUNDS(...) if (::emulator::exceeds_launch_bounds(__VA_ARGS__)) return;
#define __cluster_dims__(...)
// The rewritten source has this at the start of a kernel with __cluster_dims__.
#define EMULATOR_CLUSTER(...) if (::emulator::lacks_cluster(dim3(__VA_ARGS__))) return;
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __grid_constant__
#define __managed__
#define __nv_pure__
#define __maxnreg__(...)
#define __cudart_builtin__
#define __device_builtin__
#define __inline_hint__
// A __shared__ variable has one copy per core. A core runs one block at a time, so only the threads of that block share
// a copy. The alignment is 16 bytes, as on a GPU: kernels read four floats at once from an array without an alignment
// request.
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
#include "emulator/dpx.h"
#include "emulator/intrinsics.h"
#include "emulator/vectors.h"
#include "emulator/warp.h"
