// PyTorch's atomic operations, for each type that PyTorch supports. They are inlined, so that a profile knows the kernel's
// line.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime.h>

template <class T>
__attribute__((always_inline)) inline T gpuAtomicAdd(T* address, T value) {
  return emulator::atomically(address, [=](T old) -> T { return old + value; });
}
template <class T>
__attribute__((always_inline)) inline void gpuAtomicAddNoReturn(T* address, T value) { gpuAtomicAdd(address, value); }
template <class T>
__attribute__((always_inline)) inline T gpuAtomicMul(T* address, T value) {
  return emulator::atomically(address, [=](T old) -> T { return old * value; });
}
template <class T>
__attribute__((always_inline)) inline T gpuAtomicMax(T* address, T value) {
  return emulator::atomically(address, [=](T old) -> T { return old != old || value < old ? old : value; });
}
template <class T>
__attribute__((always_inline)) inline T gpuAtomicMin(T* address, T value) {
  return emulator::atomically(address, [=](T old) -> T { return old != old || old < value ? old : value; });
}
__attribute__((always_inline)) inline c10::Half atomicAdd(c10::Half* address, c10::Half value) { return gpuAtomicAdd(address, value); }
__attribute__((always_inline)) inline c10::BFloat16 atomicAdd(c10::BFloat16* address, c10::BFloat16 value) { return gpuAtomicAdd(address, value); }
__attribute__((always_inline)) inline int64_t atomicAdd(int64_t* address, int64_t value) { return gpuAtomicAdd(address, value); }
__attribute__((always_inline)) inline uint8_t atomicAdd(uint8_t* address, uint8_t value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
__attribute__((always_inline)) inline int8_t atomicAdd(int8_t* address, int8_t value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
__attribute__((always_inline)) inline int16_t atomicAdd(int16_t* address, int16_t value) { return gpuAtomicAdd(address, value); }
